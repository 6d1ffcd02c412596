"""From a dialogue to its (context, response) pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from icalib.data.schema import Dialogue, Utterance


class ContextResponse(NamedTuple):
    """A response and the utterances before it; `turn` is the response's index in its dialogue."""

    turn: int
    context: tuple[Utterance, ...]
    response: Utterance


def context_responses(
    dialogue: Dialogue,
    *,
    context_turns: int = 4,
    min_context: int = 2,
    last_turn_only: bool = False,
    accepted_only: bool = False,
) -> Iterator[ContextResponse]:
    """Yield the pairs of a dialogue.

    A response is an utterance of the agent with at least `min_context` utterances before it, one of them (anywhere
    before) by the user. Its context is the last `context_turns` utterances. With `last_turn_only` only the dialogue's
    last utterance may be a response, with `accepted_only` one that the source marks as an accepted answer.
    """
    utterances = dialogue.utterances
    user_spoke = False
    for turn, utterance in enumerate(utterances):
        is_last = turn == len(utterances) - 1
        wanted = utterance.speaker == "agent" and turn >= min_context and user_spoke
        if wanted and (is_last or not last_turn_only) and (utterance.is_answer or not accepted_only):
            yield ContextResponse(turn, utterances[max(0, turn - context_turns) : turn], utterance)
        user_spoke = user_spoke or utterance.speaker == "user"
