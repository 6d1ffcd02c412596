"""Domain pre-training: self-supervised tasks on the dialogues of the corpus, before training on labels."""
