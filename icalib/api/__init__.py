"""The Python API: what `icalib.run` and its companions are, and what the command line calls.

The functions are documented in docs/api.md; `import icalib` loads none of these modules until one is used.
"""
