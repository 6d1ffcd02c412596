"""The ranker and its checkpoints."""
