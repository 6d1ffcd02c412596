"""Everything that needs Ray or DeepSpeed."""
