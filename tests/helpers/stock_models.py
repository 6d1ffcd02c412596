"""Tiny rerankers as other libraries save them."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, AutoTokenizer, BertForSequenceClassification


def write_tiny_classifier(folder: Path, tiny_bert: Path) -> Path:
    """A random sequence classifier with one label, as transformers saves it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = BertForSequenceClassification(AutoConfig.from_pretrained(tiny_bert, num_labels=1))
        torch.nn.init.normal_(model.classifier.weight, std=2.0)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    return folder
