"""Compositions, one file each: a module `name.py` with a function `method()` is the method `name`."""
