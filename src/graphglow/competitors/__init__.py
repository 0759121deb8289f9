"""Every method that the paper compares with, and controls that it lacks, behind one door."""

from graphglow.competitors.fit import METHODS, FitResult, fit, method_named
from graphglow.competitors.method import Method

__all__ = ["METHODS", "FitResult", "Method", "fit", "method_named"]
