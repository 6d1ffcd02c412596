"""From the text of options to values; what the values may be is checked where they are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from icalib.core.errors import SettingError
from icalib.core.text import shortened


def parsed_limit(text: str | None) -> Any:
    """Return what --limit says: one number, or numbers by split."""
    if text is None:
        return None
    try:
        if "=" not in text:
            return int(text)
        return {name: int(number) for name, number in parsed_pairs("--limit", [text]).items()}
    except ValueError as error:
        raise SettingError(
            f"--limit {shortened(text)} can't be parsed: write a number, or e.g. train=2000,test=400."
        ) from error


def parsed_pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Return pairs NAME=VALUE, several of which may be in one text, separated by commas."""
    pairs = [part.strip().rpartition("=") for text in texts for part in text.split(",")]
    if wrong := [value for name, equals, value in pairs if not (name.strip() and equals)]:
        raise SettingError(f"{option} {shortened(wrong[0])} can't be parsed: write NAME=VALUE, separated by commas.")
    return {name.strip(): value.strip() for name, _, value in pairs}


def parsed_fractions(text: str, option: str = "--fractions") -> list[float]:
    """Return labelled fractions from numbers separated by commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise SettingError(f"{option} {shortened(text)} can't be parsed: write numbers, e.g. 0.01,0.03,0.1.") from error
