"""The command line: verbs only. Each parses, calls and prints; heavy imports wait inside the functions."""

from icalib.cli.app import main

# Each of these adds its verbs, and `icalib --help` lists them in this order.
# isort: off
from icalib.cli import (
    demo, data, methods, training, sweep, inference, report, calibration, export, serving, reproduce, cluster, jobs,
)  # fmt: skip
# isort: on

__all__ = [
    "calibration",
    "cluster",
    "data",
    "demo",
    "export",
    "inference",
    "jobs",
    "main",
    "methods",
    "report",
    "reproduce",
    "serving",
    "sweep",
    "training",
]
