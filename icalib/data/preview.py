"""What a source's first records were understood as, as lines of text; nothing is written."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from icalib.core.errors import DataError
from icalib.core.storage import pull
from icalib.core.text import shortened
from icalib.data.corpus import responses_of, shortest_context
from icalib.data.protocols import with_protocol
from icalib.data.schema import AnsweredContext, Dialogue, Pool
from icalib.data.settings import PrepareSettings, mapped_intents
from icalib.data.sources.readers import open_source

NUM_SHOWN = 3
"""Records that are shown whole."""
NUM_READ = 200
"""Records of each kind that are counted."""


def preview(source_path: str | Path, settings: PrepareSettings) -> Iterator[str]:
    """Yield lines that show the first records of a source as `prepare` would read it: roles, turns, pools."""
    source_path = Path(source_path)
    pull(source_path)
    source = open_source(source_path, settings.format, settings.reading())
    settings = with_protocol(settings, source.reader)
    settings = settings.model_copy(update={"min_context": shortest_context(source, settings)})
    source.left_out.clear()
    files = "1 file" if len(source.files) == 1 else f"{len(source.files)} files"
    yield f"format {source.reader}, {files}" + (f"; {source.understood}" if source.understood else "")
    if source.unread:
        yield source.not_read
    rejected: list[DataError] = []

    def reject(error: DataError, raw: str) -> None:
        rejected.append(error)

    dialogues = list(islice(source.dialogues(reject), NUM_READ))
    answered = list(islice(source.answers(reject), NUM_READ))
    pools = list(islice(source.pools(reject), NUM_READ))
    for record in (*dialogues[:NUM_SHOWN], *answered[:NUM_SHOWN], *pools[:NUM_SHOWN]):
        yield from _lines(record, settings)
    if dialogues:
        roles = Counter(utterance.speaker for dialogue in dialogues for utterance in dialogue.utterances)
        num_pools = sum(1 for dialogue in dialogues for _ in responses_of(dialogue, source, settings))
        yield (
            f"the first {len(dialogues)} dialogues: {roles['user']} turns of users, {roles['agent']} of agents, "
            f"{num_pools} pools with {settings.min_context} or more utterances before the response"
        )
    if answered:
        num_pools = sum(len(record.answers) for record in answered)
        yield f"the first {len(answered)} queries: {num_pools} pools, whose wrong answers will be mined"
    if pools:
        sizes = [len(pool.candidates) for pool in pools]
        yield f"the first {len(pools)} pools: {min(sizes)} to {max(sizes)} candidates"
    yield from (f"left out: {number} {what}" for what, number in source.left_out.items())
    yield from _refusals(rejected)
    if not (dialogues or answered or pools):
        yield "no record could be read"


def _refusals(rejected: Sequence[DataError]) -> Iterator[str]:
    """Yield what is wrong with records: the most common errors, by the field that they are in."""
    kinds: dict[str, list[DataError]] = {}
    for error in rejected:
        kinds.setdefault(re.sub(r"\.\d+", "", error.field) or error.found.partition(":")[0], []).append(error)
    alike = sorted(kinds.values(), key=len, reverse=True)
    for errors in alike[:NUM_SHOWN]:
        more = f" And {len(errors) - 1} more records like it." if len(errors) > 1 else ""
        yield f"not valid: {errors[0]}{more}"
    if rest := sum(map(len, alike[NUM_SHOWN:])):
        yield f"... and {rest} more records that are not valid"


def _lines(record: Dialogue | AnsweredContext | Pool, settings: PrepareSettings) -> Iterator[str]:
    kind, name = ("pool", record.pool_id) if isinstance(record, Pool) else ("dialogue", record.dialog_id)
    about = ", ".join(filter(None, (record.split, record.domain)))
    yield f"{kind} {name}" + (f" ({about})" if about else "")
    for utterance in record.utterances if isinstance(record, Dialogue) else record.context:
        names = mapped_intents(settings.map_intents, utterance.speaker, utterance.intents)
        yield f"  {utterance.speaker}: {_short(utterance.text)}" + (f" [{', '.join(names)}]" if names else "")
    if isinstance(record, AnsweredContext):
        yield from (f"    right: {_short(text)}" for text in record.answers)
    if isinstance(record, Pool):
        for index, text in enumerate(record.candidates[: NUM_SHOWN + 1]):
            yield f"    {'right' if index in record.right else 'wrong'}: {_short(text)}"


def _short(text: str) -> str:
    return shortened(" ".join(text.split()), 66)  # so that most lines fit in a terminal
