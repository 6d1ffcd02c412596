"""What a source's first records were understood as, as lines of text; nothing is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from icalib.core.errors import DataError
from icalib.core.storage import pull
from icalib.data.corpus import responses_of, shortest_context
from icalib.data.intent_map import IntentMap, mapped_intents
from icalib.data.protocols import with_protocol
from icalib.data.schema import NONE_RIGHT, AnsweredContext, Dialogue, Pool, Utterance
from icalib.data.settings import PrepareSettings
from icalib.data.sources.base import Source
from icalib.data.sources.readers import open_source

NUM_SHOWN = 3
"""Records that are shown whole."""
NUM_READ = 200
"""Records of each kind that are counted."""
_WIDTH = 66
"""Characters of a text that are shown, so that most lines fit in a terminal."""


def preview(source_path: str | Path, settings: PrepareSettings) -> Iterator[str]:
    """Yield lines that show the first records of a source as `prepare` would read it: roles, turns, pools.

    Raises:
        SettingError: an unknown reader, or a format that cannot be detected.
        DataError: a source that cannot be read, or a label that the intent map lacks.
    """
    source_path = Path(source_path)
    pull(source_path)
    source = open_source(source_path, settings.format, settings.reading())
    settings = with_protocol(settings, source.reader)
    settings = settings.model_copy(update={"min_context": shortest_context(source, settings)})
    source.left_out.clear()
    files = "1 file" if len(source.files) == 1 else f"{len(source.files)} files"
    yield f"format {source.reader}, {files}" + (f"; {source.understood}" if source.understood else "")
    rejected: list[DataError] = []

    def reject(error: DataError, raw: str) -> None:
        rejected.append(error)

    dialogues = list(islice(source.dialogues(reject), NUM_READ))
    answered = list(islice(source.answers(reject), NUM_READ))
    pools = list(islice(source.pools(reject), NUM_READ))
    if dialogues:
        yield from _dialogues(source, dialogues, settings)
    if answered:
        yield from _answered(answered, settings.map_intents)
    if pools:
        yield from _pools(pools, settings.map_intents)
    for what, number in source.left_out.items():
        yield f"left out: {number} {what}"
    for error in rejected[:NUM_SHOWN]:
        yield f"not valid: {error}"
    if len(rejected) > NUM_SHOWN:
        yield f"... and {len(rejected) - NUM_SHOWN} more records that are not valid"
    if not (dialogues or answered or pools):
        yield "no record could be read"


def _dialogues(source: Source, dialogues: list[Dialogue], settings: PrepareSettings) -> Iterator[str]:
    for dialogue in dialogues[:NUM_SHOWN]:
        yield f"dialogue {dialogue.dialog_id}" + _about(dialogue.split, dialogue.domain)
        yield from _turns(dialogue.utterances, settings.map_intents)
    roles = Counter(utterance.speaker for dialogue in dialogues for utterance in dialogue.utterances)
    num_pools = sum(1 for dialogue in dialogues for _ in responses_of(dialogue, source, settings))
    yield (
        f"the first {len(dialogues)} dialogues: {roles['user']} turns of users, {roles['agent']} of agents, "
        f"{num_pools} pools with {settings.min_context} or more utterances before the response"
    )


def _answered(answered: list[AnsweredContext], intent_map: IntentMap) -> Iterator[str]:
    for record in answered[:NUM_SHOWN]:
        yield f"query {record.dialog_id}" + _about(record.split, record.domain)
        yield from _turns(record.context, intent_map)
        yield from (f"    right: {_short(text)}" for text in record.answers)
    num_pools = sum(len(record.answers) for record in answered)
    yield f"the first {len(answered)} queries: {num_pools} pools, whose wrong answers will be mined"


def _pools(pools: list[Pool], intent_map: IntentMap) -> Iterator[str]:
    for pool in pools[:NUM_SHOWN]:
        yield f"pool {pool.pool_id}" + _about(pool.split, pool.domain)
        yield from _turns(pool.context, intent_map)
        for index, text in enumerate(pool.candidates[: NUM_SHOWN + 1]):
            yield f"    {'right' if index in pool.right else 'wrong'}: {_short(text)}"
    sizes = [len(pool.candidates) for pool in pools]
    unanswerable = sum(pool.label == NONE_RIGHT for pool in pools)
    several = sum(bool(pool.also_right) for pool in pools)
    without = f", {unanswerable} of them without a right one" if unanswerable else ""
    with_several = f", {several} of them with several right ones" if several else ""
    yield f"the first {len(pools)} pools: {min(sizes)} to {max(sizes)} candidates{without}{with_several}"


def _turns(utterances: Iterable[Utterance], intent_map: IntentMap) -> Iterator[str]:
    for utterance in utterances:
        names = mapped_intents(intent_map, utterance.speaker, utterance.intents)
        intents = f" [{', '.join(names)}]" if names else ""
        yield f"  {utterance.speaker}: {_short(utterance.text)}{intents}"


def _about(split: str | None, domain: str) -> str:
    found = ", ".join(part for part in (split or "", domain) if part)
    return f" ({found})" if found else ""


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."
