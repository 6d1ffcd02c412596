"""From a source to a pool set: read, split, mine negatives, shuffle candidates, order labels, write Parquet.

Nothing is held whole but the dialogue ids: pools are spilled to Arrow files, negatives are mined block by block.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from icalib.core.component import module_digest
from icalib.core.contents import facts_of
from icalib.core.errors import DataError, SettingError
from icalib.core.files import write_json
from icalib.core.storage import location, pull, push
from icalib.core.version import __version__
from icalib.data.corpus import RejectedRecords, hold_out, read_corpus, shortest_context
from icalib.data.logs import LOGS_FILE, write_logs
from icalib.data.mining import Progress, mine_split, responses_together
from icalib.data.negatives import NEGATIVE_SAMPLERS, ParallelMap
from icalib.data.pool_folder import PoolWriter, described, replaced_folder
from icalib.data.pools import prepared_inputs, read_pool_set, split_file
from icalib.data.protocols import PROTOCOLS, unmet, with_protocol
from icalib.data.schema import POOLS_FILE, POOLS_VERSION, SPLITS, PoolSet
from icalib.data.settings import PrepareSettings
from icalib.data.sources.readers import READERS, open_source
from icalib.data.sources.records import Source

Note = Callable[[str], None]
"""note(text): something that the user should know and that stops nothing."""

DEFAULT_SETTINGS = PrepareSettings()
_OF_MINED = {"negative_sampler": "--negatives", "min_context": "--min-context"}


def prepare(
    source_path: str | Path,
    out: str | Path,
    settings: PrepareSettings = DEFAULT_SETTINGS,
    *,
    logs: str | Path | None = None,
    fresh: bool = False,
    parallel_map: ParallelMap = map,
    begin: Callable[[], None] = lambda: None,
    progress: Progress = lambda stage, done, total: None,
    note: Note = lambda text: None,
) -> PoolSet:
    """Write a source's pools to the folder `out`, whole or not at all; with the same inputs return an existing one.

    A source that holds ready pools keeps their candidates, or the first `num_candidates` of ranked lists, and of others
    where a number was asked for. The order of candidates is always shuffled by seed, so a position says nothing.

    Args:
        logs: sources of whole dialogues outside the pools, for domain pre-training; they may contain the source's.
        fresh: replace a pool folder of other inputs; a folder of anything else is never touched.
        parallel_map: maps `mine_block` over blocks, in order.
        begin: called before anything is written; not where the folder is refused, or has the pools already.
        progress: receives the stages `read`, `mine <split>` and `write <split>`.
        note: receives messages about what is unusual but no error.

    Raises:
        SettingError: an unknown reader or sampler, or `out` holds something else.
        DataError: an invalid record (without `skip_bad`), a dialogue in two splits, too few responses or dialogues.
        StorageError: the disk refused a write.
    """
    out = Path(out)
    NEGATIVE_SAMPLERS.load(settings.negative_sampler)  # raises before anything is read
    pull(out)
    source = _opened(source_path, settings.format, settings)
    log_source = _opened(logs, None, settings) if logs is not None else None
    _show_sources(source, log_source, settings, note)
    given = {name: option for name, option in _OF_MINED.items() if name in settings.model_fields_set}
    if source.is_of_pools and given:
        raise SettingError(
            f"{', '.join(given.values())}: for pools that are mined, and those of this source have wrong answers of "
            "their own. Leave it out, or take the wrong answers out of the source."
        )
    settings = with_protocol(settings, source.reader)
    min_context = shortest_context(source, settings)
    if min_context < settings.min_context:
        note("the dialogues have two turns: a response needs one utterance before it")
    settings = settings.model_copy(update={"min_context": min_context})
    if out.exists() and not (out / POOLS_FILE).is_file():
        raise SettingError(f"{out} exists and is not a pool folder. Choose another name, or remove it yourself.")
    inputs = _inputs(source, log_source, settings)
    if out.exists() and not fresh:
        pool_set = _existing(out, inputs, note)
    else:
        begin()
        rejected_path = out.with_name(f"{out.name}.rejected.jsonl")
        with replaced_folder(out) as folder:
            rejected = RejectedRecords(folder / "rejected.jsonl") if settings.skip_bad else None
            try:
                pool_set = _write(
                    folder, out.name, source_path, source, log_source, settings, rejected, parallel_map, progress, note
                )
            finally:  # what is wrong with the records often explains why pools can't be made of the others
                if rejected and rejected.count:
                    os.replace(rejected.path, rejected_path)
                    push(rejected_path)
                    note(f"{rejected.count} records were left out; see {rejected_path}")
            if out.exists() and not fresh:  # of another process, which was faster
                _existing(out, inputs, note)
        if rejected and not rejected.count:
            rejected_path.unlink(missing_ok=True)  # of earlier pools
    push(out)  # also a folder that exists: its last upload may not have completed
    return pool_set


def _write(
    folder: Path,
    name: str,
    source_path: str | Path,
    source: Source,
    logs: Source | None,
    settings: PrepareSettings,
    rejected: RejectedRecords | None,
    parallel_map: ParallelMap,
    progress: Progress,
    note: Note,
) -> PoolSet:
    corpus = read_corpus(source, folder, settings, rejected, progress)
    messages = [
        *(f"left out: {number} {what}" for what, number in source.left_out.items()),
        *hold_out(corpus, folder, settings),
    ]
    inputs = _inputs(source, logs, settings)
    writer = PoolWriter(folder, settings.seed, inputs)
    together = responses_together({split: corpus.spills[split].num_rows for split in corpus.mined}, settings)
    for split in SPLITS:
        spill, negatives = corpus.spills[split], None
        if split in corpus.mined:
            negatives = mine_split(spill, folder, split, settings, parallel_map, progress, together=together)
        elif settings.unanswerable and spill.num_rows:
            raise SettingError(
                f"--unanswerable is for wrong candidates that are mined, and the {split} pools of this source "
                "have their own. Leave it out, or take right candidates out of the source."
            )
        writer.write(split, corpus, negatives, progress, settings.unanswerable)
    num_copies = writer.leaks.num_copies_across_splits()
    num_logs = 0
    if logs:
        num_logs = write_logs(logs, folder / LOGS_FILE, rejected, progress)
        messages += [f"logs: left out: {number} {what}" for what, number in logs.left_out.items()]
    files = [*map(split_file, SPLITS), *([LOGS_FILE] if logs else [])]
    pool_set = PoolSet(
        version=POOLS_VERSION,
        name=name,
        **described(writer.splits),
        source=location(Path(source_path)),
        source_digest=inputs["source_digest"],
        reader=source.reader,
        negative_sampler=settings.negative_sampler if corpus.mined else "source",
        num_candidates=writer.num_candidates,
        context_turns=settings.context_turns,
        protocol=settings.protocol,
        answers="accepted" if source.accepted_only else settings.answers,
        intents_in=tuple(split for split in SPLITS if split in corpus.intents_in),
        split_origin="mixed" if len(corpus.split_origins) > 1 else "".join(corpus.split_origins),
        limit=settings.limit,
        seed=settings.seed,
        default_labelled_fraction=settings.labelled or corpus.fraction_with_intents(),
        intents=tuple(sorted(corpus.intents)),
        num_pools=corpus.num_rows,
        num_dialogues=writer.leaks.num_dialogues(),
        num_rejected=rejected.count if rejected else 0,
        num_logs=num_logs,
        logs_digest=inputs.get("logs_digest", ""),
        created_with=f"icalib {__version__}",
        files={file: facts_of(folder / file) for file in files},
    ).sealed()
    write_json(folder / POOLS_FILE, pool_set.model_dump())
    for message in [*messages, *_remarks(pool_set, num_copies)]:
        note(message)
    return pool_set


def _inputs(source: Source, logs: Source | None, settings: PrepareSettings) -> dict[str, Any]:
    more: dict[str, Any] = {"logs_digest": logs.digest()} if logs else {}
    if source.has_whole_pools and settings.protocol is None and settings.asks_for_candidates:
        more["cut_to"] = settings.num_candidates  # the default number, not asked for, cuts none
    for what, module in (
        ("reader", READERS.module_outside(source.reader)),
        ("negative_sampler", NEGATIVE_SAMPLERS.module_outside(settings.negative_sampler)),
    ):
        if module:  # so that an edited one is noticed
            more[f"{what}_digest"] = module_digest(module)
    return {"version": POOLS_VERSION, "source_digest": source.digest(), **settings.inputs(), **more}


def _opened(path: str | Path, format: str | None, settings: PrepareSettings) -> Source:
    pull(Path(path))
    return open_source(path, format, settings.reading())


def _show_sources(source: Source, logs: Source | None, settings: PrepareSettings, note: Note) -> None:
    """Show what was detected and guessed, and refuse an option that neither reader takes."""
    taken: set[str] = set()
    for name, opened in (("", source), ("logs: ", logs)):
        if opened is not None:
            taken |= {*READERS.load(opened.reader).options}
            if opened.understood:
                note(f"{name}format {opened.reader}; {opened.understood}")
            if opened.unread:
                note(f"{name}{opened.not_read}")
    for option, value in settings.reading().items():
        if value and option not in taken:
            readers = [name for name in READERS.names() if option in READERS.load(name).options]
            raise SettingError(
                f"--{option} has no meaning for the format {source.reader}. The formats {', '.join(readers)} take it. "
                "Leave it out, or name another format with --format."
            )


def _existing(out: Path, inputs: Mapping[str, Any], note: Note) -> PoolSet:
    try:
        pool_set = read_pool_set(out)
    except DataError as error:
        raise SettingError(f"{error} Add --fresh to replace it.") from error
    earlier = prepared_inputs(out)
    if changed := [name for name in sorted({*inputs, *earlier}) if earlier.get(name) != inputs.get(name)]:
        raise SettingError(
            f"{out} was prepared from other inputs ({', '.join(changed)}). Choose another folder, or add --fresh to "
            "replace it."
        )
    note(f"{out} exists already and has the same inputs; no action needed")
    return pool_set


_NO_TRAINING = (
    ": all records have another split, their own or the word for one in their file's name. Rename the file if that "
    "word means something else; pools for `evaluate` need no others"
)


def _remarks(pool_set: PoolSet, num_copies: int) -> Iterator[str]:
    """Yield what is unusual; `num_copies` counts texts of validation or test that occur in another split, too."""
    empty = [split for split, number in pool_set.num_pools.items() if not number]
    if empty:
        cure = "; methods need them: prepare more dialogues, or give some of them a `split`"
        yield f"there are no {' and no '.join(empty)} pools" + (_NO_TRAINING if "train" in empty else cure)
    for which, number_of in (("without a", pool_set.num_unanswerable), ("with several", pool_set.num_several_right)):
        if number_of:
            counts = ", ".join(f"{number} {split}" for split, number in number_of.items())
            yield f"pools {which} right candidate{'s' * (which == 'with several')}: {counts}"
    if num_copies:
        yield f"{num_copies} (context, response) texts of validation or test occur word for word in another split"
    if pool_set.protocol:
        for difference in unmet(pool_set, PROTOCOLS[pool_set.protocol]):
            yield f"not as the protocol {pool_set.protocol} has it: {difference}"
