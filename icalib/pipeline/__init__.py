"""One run, from pools to metrics."""
