"""Sweep spaces: one question a file, see `icalib.sweeps.space`."""
