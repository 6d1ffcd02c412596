"""Sweeps: spaces, studies and their folders; what needs Ray is in `icalib.distributed.tune`."""
