"""What `icalib doctor` looks at before a run costs money."""
