"""The version of graphglow; below everything, so that any module can ask for it."""

__version__ = "0.1.0"
