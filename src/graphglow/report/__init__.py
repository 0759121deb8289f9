"""Reports: rows of results, or one decision, turned into one self-contained page."""

from graphglow.report.explanation import write_explanation
from graphglow.report.page import write_report
from graphglow.report.template import is_report

__all__ = ["is_report", "write_explanation", "write_report"]
