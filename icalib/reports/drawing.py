"""Two small pictures for TensorBoard, which takes pixels: reliability diagram and risk-coverage curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from icalib.metrics.calibration import reliability_table
from icalib.metrics.pairs import PoolScores
from icalib.metrics.ranking import top_candidate
from icalib.metrics.selective import risk_coverage

Pixels = npt.NDArray[np.uint8]
"""[height, width, 3]"""

_SIZE = 480
_OVERSAMPLING = 3  # drawn larger and scaled down: smooth lines
_MARGIN = 56
_BLUE, _GREY, _LIGHT, _INK, _PAPER = "#0072B2", "#8A8F98", "#E2E5EA", "#1C2026", "#FFFFFF"


def reliability_image(scores: PoolScores) -> Pixels:
    """Fraction of right pairs against mean probability in ten bins, with Wilson 95 % intervals."""
    bins = [one for one in reliability_table(scores.prob, scores.label).to_pylist() if one["n"]]
    axes = _Axes("mean probability", "fraction right", y_top=1.0)
    axes.line([(0, 0), (1, 1)], _GREY, width=1)
    for one in bins:
        axes.line([(one["conf"], one["acc_low"]), (one["conf"], one["acc_high"])], _BLUE, width=2)
    axes.line([(one["conf"], one["acc"]) for one in bins], _BLUE, width=2)
    for one in bins:
        axes.dot(one["conf"], one["acc"], _BLUE)
    return axes.pixels()


def risk_coverage_image(scores: PoolScores) -> Pixels:
    """Error rate of the most confident fraction of pools; the vertical axis ends at the next fifth above it."""
    top = top_candidate(scores)
    coverage, risk = risk_coverage(top.prob, 1 - top.hit)
    axes = _Axes("coverage", "risk", y_top=max(0.2, np.ceil(risk.max() * 5) / 5))
    axes.line(list(zip(coverage, risk, strict=True)), _BLUE, width=3)
    return axes.pixels()


@final
class _Axes:
    """A square plot of x in [0, 1] and y in [0, y_top]."""

    def __init__(self, x_title: str, y_title: str, *, y_top: float) -> None:
        self._y_top = y_top
        self._image = Image.new("RGB", (_SIZE * _OVERSAMPLING, _SIZE * _OVERSAMPLING), _PAPER)
        self._draw = ImageDraw.Draw(self._image)
        self._font = ImageFont.load_default(14 * _OVERSAMPLING)
        for tick in np.linspace(0, 1, 6):
            self.line([(tick, 0), (tick, y_top)], _LIGHT, width=1)
            self.line([(0, tick * y_top), (1, tick * y_top)], _LIGHT, width=1)
            x, y = self._pixel(tick, 0)
            self._text(x, y + 14 * _OVERSAMPLING, f"{tick:.1f}", "mm")
            x, y = self._pixel(0, tick * y_top)
            self._text(x - 8 * _OVERSAMPLING, y, f"{tick * y_top:.2g}", "rm")
        x, y = self._pixel(0.5, 0)
        self._text(x, y + 38 * _OVERSAMPLING, x_title, "mm")
        x, y = self._pixel(0, y_top)
        self._text(x, y - 20 * _OVERSAMPLING, y_title, "lm")

    def line(self, points: Sequence[tuple[float, float]], colour: str, *, width: int) -> None:
        pixels = [self._pixel(x, y) for x, y in points]
        self._draw.line(pixels, fill=colour, width=width * _OVERSAMPLING, joint="curve")

    def dot(self, x: float, y: float, colour: str) -> None:
        self._draw.circle(self._pixel(x, y), 5 * _OVERSAMPLING, fill=colour)

    def pixels(self) -> Pixels:
        return np.asarray(self._image.resize((_SIZE, _SIZE), Image.Resampling.LANCZOS))

    def _pixel(self, x: float, y: float) -> tuple[float, float]:
        side = _SIZE - 2 * _MARGIN
        across, down = _MARGIN + x * side, _SIZE - _MARGIN - y / self._y_top * side
        return across * _OVERSAMPLING, down * _OVERSAMPLING

    def _text(self, x: float, y: float, text: str, anchor: str) -> None:
        self._draw.text((x, y), text, fill=_INK, font=self._font, anchor=anchor)
