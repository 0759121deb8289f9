"""Reports: rows of results, or one decision, turned into one self-contained page."""

from graphglow.report.demo import write_report
from graphglow.report.explanation import write_explanation, write_pair_explanation
from graphglow.report.page import is_report

__all__ = ["is_report", "write_explanation", "write_pair_explanation", "write_report"]
