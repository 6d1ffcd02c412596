"""Rates of GPUs that are not here: FLOPs of an input, at an assumed fraction of the peak in the maker's data sheet."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Self

from icalib.core.errors import SettingError
from icalib.encoders.transformer import BackboneEncoder
from icalib.models.config import RankerConfig
from icalib.pipeline.rates import Rates

PEAKS = {"A10": 125e12, "A100": 312e12, "H100": 989e12, "H200": 989e12, "L4": 121e12, "L40S": 362e12}
"""FLOP per second of products in bfloat16 without sparsity, from the makers' data sheets (SXM where there are two)."""

_FRACTION = 0.4  # of the peak, in large batches
_UPDATE_SECONDS = 2e-3  # per layer: launching the kernels of an update, however small its batch
_PASS_SECONDS = 3e-4  # per layer: launching those of a forward pass
_LENGTHS = (16, 32, 64, 128, 256, 512)
_MAX_INPUTS = 256  # in a batch of scoring

SPREAD = (0.5, 2.5)
"""Minimum and maximum time, relative to the estimate: nothing is measured."""


@dataclass(frozen=True)
class TabledGpus:
    """A number of GPUs of a kind in PEAKS."""

    number: int
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the GPUs that a text like 8xH200 names.

        Raises:
            SettingError: it names none in PEAKS.
        """
        found = re.fullmatch(r"([1-9]\d{0,4})x(\w+)", text, re.IGNORECASE)
        if found is None or found[2].upper() not in PEAKS:
            raise SettingError(
                f"--gpus {text!r} names no known GPUs: write a number, x and one of {', '.join(PEAKS)}, e.g. 8xH200."
            )
        return cls(int(found[1]), found[2].upper())

    @property
    def basis(self) -> str:
        """What estimates for these GPUs are based on."""
        return (
            f"not measured: FLOPs at {_FRACTION:.0%} of the peak of a {self.name} in its maker's data sheet "
            f"({PEAKS[self.name] / 1e12:.0f} TFLOP/s); range: {SPREAD[0]:g} to {SPREAD[1]:g} times that"
        )

    def rates(self, ranker: RankerConfig, *, batch_size: int, max_tokens: int) -> Rates:
        """Return the rates of one of these GPUs, from the shapes of a ranker's backbone.

        Args:
            ranker: a ranker with a backbone.
            batch_size: inputs of an update, over all GPUs.
            max_tokens: maximum number of padded tokens of a scoring batch.

        Raises:
            SettingError: the ranker's encoder is not a transformer.
        """
        encoder = ranker.encoder
        if not isinstance(encoder, BackboneEncoder.Config):
            raise SettingError(
                f"--gpus computes the FLOPs of a transformer, and {encoder.owner.__name__} is none. "
                "Plan without --gpus."
            )
        shape = encoder.load_backbone_config()
        # Of 2 for each forward FLOP, the backward pass leaves out those of frozen layers.
        backward = 2 * (1 - (encoder.frozen_layers or 0) / shape.num_hidden_layers)
        # The bi-encoder reads each pair once; all passes with dropout share that.
        passes = 2 if ranker.similarity_start in ("separate", "both") else 1
        own_batch = max(1.0, batch_size / self.number)
        flops = {length: _flops(shape, length) / (_FRACTION * PEAKS[self.name]) for length in _LENGTHS}
        update = _UPDATE_SECONDS * shape.num_hidden_layers / own_batch
        launch = {
            length: _PASS_SECONDS * shape.num_hidden_layers / min(_MAX_INPUTS, max(1, max_tokens // length))
            for length in _LENGTHS
        }
        lengths = tuple(map(float, _LENGTHS))
        return Rates(
            training_lengths=lengths,
            trained=tuple(max((backward + passes) * flops[length], update) for length in _LENGTHS),
            scoring_lengths=lengths,
            passed=tuple(passes * max(flops[length], launch[length]) for length in _LENGTHS),
            dropped=tuple(max(flops[length], launch[length]) for length in _LENGTHS),
            memory=0,
        )


def _flops(shape: Any, length: int) -> float:
    """FLOPs of a forward pass over one input: two for each weight of a layer and token, and those of attention."""
    width, inner = shape.hidden_size, shape.intermediate_size
    of_layer = 2 * length * (4 * width**2 + 2 * width * inner) + 4 * length**2 * width
    return float(shape.num_hidden_layers * of_layer)
