"""Who speaks: from the names that sources use to user and agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from icalib.core.invalid import abbreviated
from icalib.data.sources.records import Raw

Role = Literal["user", "agent", "skip"]
"""`skip` leaves out what a speaker says."""

NO_SPEAKERS: Mapping[str, Role] = {}
_USERS = (
    "user customer client human visitor guest caller requester seeker asker buyer patient consumer contact prompter "
    "member end-user end_user enduser"
)
_AGENTS = (
    "agent assistant bot chatbot gpt chatgpt bing bard claude ai model support operator staff advisor adviser "
    "representative rep wizard helper expert provider seller consultant"
)
_SKIPPED = "system developer tool function function_call function_response tool_call tool_response observation event"

DEFAULT_SPEAKERS: Mapping[str, Role] = {
    **dict.fromkeys(_USERS.split(), "user"),
    **dict.fromkeys(_AGENTS.split(), "agent"),
    **dict.fromkeys(_SKIPPED.split(), "skip"),
}
"""What speakers are without `--speakers`; upper and lower case are the same."""


def role_of(speaker: Any, given: Mapping[str, Role], raw: Raw, field: str) -> Role:
    """Return what a speaker is, by the names that the user has given (`*`: all others) and those that are usual.

    A name that is neither given nor known, found in `field` of a record, is a DataError.
    """
    name = str(speaker).strip().lower() if isinstance(speaker, str | int | bool) else ""
    ours: dict[str, Role] = {key.strip().lower(): role for key, role in given.items()}
    role: Role | None = ours.get(name) or DEFAULT_SPEAKERS.get(name) or ours.get("*")
    if not name or role is None:
        example = speaker if isinstance(speaker, str) and speaker.strip() else "NAME"
        raise raw.error(
            f"found {abbreviated(speaker)} as speaker",
            f"Expected 'user' or 'agent', or a name such as customer or assistant. Say what the speaker is: "
            f"--speakers '{abbreviated(example)[1:-1]}=user' (or agent, or skip; *=user is for all others). "
            f"{raw.cure}.",
            field,
        )
    return role
