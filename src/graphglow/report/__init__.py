"""Reports as self-contained pages: rows of results, a demo, an explanation."""

from graphglow.report.demo import write_report
from graphglow.report.explanation import write_explanation
from graphglow.report.page import PAGES, is_report

__all__ = ["PAGES", "is_report", "write_explanation", "write_report"]
