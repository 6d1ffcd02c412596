"""Post-training: what an encoder learns from the corpus' own dialogues before it sees a label."""
