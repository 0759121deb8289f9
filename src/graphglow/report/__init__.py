"""Reports: rows of results, turned into one self-contained page."""

from graphglow.report.page import write_report
from graphglow.report.template import is_report

__all__ = ["is_report", "write_report"]
