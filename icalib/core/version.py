"""The version of icalib."""

__version__ = "0.2.0"
