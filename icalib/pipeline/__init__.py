"""A run, from pools to metrics, and inference with finished runs."""
