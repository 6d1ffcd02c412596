"""`python -m icalib`: the command line, from wherever the package is imported."""

from icalib.cli import main

main()
