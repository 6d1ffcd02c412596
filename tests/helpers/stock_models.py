"""Tiny rerankers as other libraries save them."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer


def write_tiny_classifier(folder: Path, backbone: Path) -> Path:
    """A random sequence classifier with one label, as transformers saves it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForSequenceClassification.from_config(AutoConfig.from_pretrained(backbone, num_labels=1))
        for layer in model.classifier.modules():
            if isinstance(layer, torch.nn.Linear):
                torch.nn.init.normal_(layer.weight, std=2.0)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(backbone).save_pretrained(folder)
    return folder
