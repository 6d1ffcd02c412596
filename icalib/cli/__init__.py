"""The command line: verbs only. Each parses, calls and prints; heavy imports wait inside the functions."""

from importlib import import_module

from icalib.cli.app import main as main

# Each of these modules adds its verbs, and `icalib --help` lists them in this order.
_MODULES = ("demo", "data", "methods", "training", "inference", "label", "deploy", "reproduce", "cluster")
for _name in _MODULES:
    import_module(f"icalib.cli.{_name}")
