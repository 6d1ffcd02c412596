"""Late dropout the slow way: full passes in which the modules below the top layers are in evaluation mode."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from unittest.mock import patch

from icalib.models.ranker import Ranker
from icalib.scoring import scorer


@contextmanager
def no_dropout_below(num_top: int) -> Generator[None, None, None]:
    """In stochastic passes of scoring, switch off the dropout of embeddings and layers below the top ones."""

    def set_training(ranker: Ranker, training: bool) -> None:
        ranker.train(training)
        backbone = ranker.encoder.backbone
        layers = backbone.encoder.layer
        for module in (backbone.embeddings, *layers[: len(layers) - num_top]):
            module.eval()

    with patch.object(scorer, "_set_training", set_training):
        yield
