"""From a dialogue to its (context, response) pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from icalib.data.schema import Dialogue, Utterance


class ContextResponse(NamedTuple):
    """A response and the utterances before it; `turn` is the response's place in its dialogue (0 first)."""

    turn: int
    context: tuple[Utterance, ...]
    response: Utterance


def context_responses(
    dialogue: Dialogue, *, context_turns: int = 4, min_context: int = 2, last_turn_only: bool = False
) -> Iterator[ContextResponse]:
    """The pairs of a dialogue.

    A response is an utterance of the agent with at least `min_context` utterances before it, one of them (anywhere
    before) by the user. Its context is the last `context_turns` utterances.

    Args:
        dialogue: the whole dialogue.
        context_turns: length of a context at most.
        min_context: 1 takes the answers of two-turn dialogues as well.
        last_turn_only: the dialogue's last utterance alone may be a response.
    """
    utterances = dialogue.utterances
    user_spoke = False
    for turn, utterance in enumerate(utterances):
        is_last = turn == len(utterances) - 1
        wanted = utterance.speaker == "agent" and turn >= min_context and user_spoke
        if wanted and (is_last or not last_turn_only):
            yield ContextResponse(turn, utterances[max(0, turn - context_turns) : turn], utterance)
        user_spoke = user_spoke or utterance.speaker == "user"
