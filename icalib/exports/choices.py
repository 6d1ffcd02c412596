"""What an export can be; light to import, since every command line reads it."""

from __future__ import annotations

from typing import Literal

ExportFormat = Literal["cross-encoder", "sentence-transformer", "onnx"]
FORMATS: tuple[ExportFormat, ...] = ("cross-encoder", "sentence-transformer", "onnx")
CalibrationChoice = Literal["run", "platt", "temperature"]
"""`run`: the run's own calibration, if it has one; otherwise what is fitted to the run's validation predictions."""
CALIBRATIONS: tuple[CalibrationChoice, ...] = ("run", "platt", "temperature")
