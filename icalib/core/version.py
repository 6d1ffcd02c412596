"""The version of icalib."""

__version__ = "0.1.0"
