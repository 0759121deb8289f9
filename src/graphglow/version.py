"""The version of graphglow; below everything, so that any module can ask for it."""

__version__ = "0.2.0"
