"""Reports: rows of results, turned into one self-contained page."""

from graphglow.report.page import is_report, write_report

__all__ = ["is_report", "write_report"]
