"""From the text of options to values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from icalib.core.errors import SettingError
from icalib.core.text import shortened

if TYPE_CHECKING:
    from icalib.data.schema import Split
    from icalib.data.sources.speakers import Role


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


def parsed_pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Return pairs NAME=VALUE, several of which may be in one text, separated by commas.

    Raises:
        SettingError: a part has no name or no sign =.
    """
    pairs = [part.strip().rpartition("=") for text in texts for part in text.split(",")]
    if wrong := [value for name, equals, value in pairs if not (name.strip() and equals)]:
        raise SettingError(f"{option} {wrong[0]} can't be parsed: write NAME=VALUE, separated by commas.")
    return {name.strip(): value.strip() for name, _, value in pairs}


def parsed_speakers(texts: Sequence[str]) -> dict[str, Role]:
    """Return what --speakers says.

    Raises:
        SettingError: it can't be parsed, or a speaker is to be something else than user, agent or skip.
    """
    speakers: dict[str, Role] = {}
    for name, role in parsed_pairs("--speakers", texts).items():
        if role not in ("user", "agent", "skip"):
            raise SettingError(f"--speakers {name}={role}: expected user, agent or skip after the sign =.")
        speakers[name] = role
    return speakers


def _is_number(text: str) -> bool:
    return text.strip().isdecimal() and len(text.strip()) < 19


def parsed_fractions(text: str, option: str = "--fractions") -> list[float]:
    """Return labelled fractions from numbers separated by commas.

    Raises:
        SettingError: a part is not a number.
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise SettingError(f"{option} {shortened(text)} can't be parsed: write numbers, e.g. 0.01,0.03,0.1.") from error
