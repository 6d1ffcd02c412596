"""From features to logits."""
