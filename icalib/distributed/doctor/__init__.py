"""The checks of `icalib doctor`, which find problems before a run costs money."""
