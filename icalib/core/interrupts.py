"""Interruption of this process from outside."""

from __future__ import annotations


class Terminated(KeyboardInterrupt):
    """SIGTERM was received; like Ctrl-C, it unwinds the process, so that locks are released and Ray is shut down."""
