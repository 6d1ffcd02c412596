"""Dialogues, pools, token ids and batches."""
