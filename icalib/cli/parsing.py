"""From the text of options to values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from icalib.core.errors import SettingError
from icalib.core.text import shortened

if TYPE_CHECKING:
    from icalib.data.schema import Split


def parsed_limit(text: str | None) -> Mapping[Split, int]:
    """Return what --limit says of each split.

    Raises:
        SettingError: it can't be parsed.
    """
    from icalib.data.schema import SPLITS

    if text is None:
        return {}
    parts: dict[str, str] = dict.fromkeys(SPLITS, text)
    if "=" in text:
        parts = {name.strip(): number for name, _, number in (part.partition("=") for part in text.split(","))}
    limits: dict[Split, int] = {name: int(parts[name]) for name in SPLITS if _is_number(parts.get(name, ""))}
    if len(limits) != len(parts) or min(limits.values(), default=0) < 1:
        raise SettingError(
            f"--limit {shortened(text)} can't be parsed: write a number above 0, or e.g. train=2000,test=400."
        )
    return limits


def _is_number(text: str) -> bool:
    return text.strip().isdecimal() and len(text.strip()) < 19


def parsed_fractions(text: str) -> list[float]:
    """Return labelled fractions from numbers separated by commas.

    Raises:
        SettingError: a part is no number.
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise SettingError(
            f"--fractions {shortened(text)} can't be parsed: write numbers, e.g. 0.01,0.03,0.1."
        ) from error
