"""The Python API: the functions behind `icalib.run`, `icalib.compare` and others, which the command line calls, too.

The functions are documented in docs/api.md; `import icalib` loads none of these modules until one is used.
"""
