"""From a source to a pool set: read, split, mine negatives, shuffle candidates, order labels, write Parquet.

Nothing is held whole but the dialogue ids: pools are spilled to Arrow files, negatives are mined over blocks of at
most `mining_block` responses, and the result is written in row groups. The folder appears when it is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from icalib.core.contents import facts_of
from icalib.core.errors import DataError, SettingError
from icalib.core.files import content_digest, write_json
from icalib.core.storage import location, pull, push
from icalib.core.version import __version__
from icalib.data.corpus import RejectedRecords, read_corpus, shortest_context
from icalib.data.held_out import hold_out
from icalib.data.logs import LOGS_FILE, write_logs
from icalib.data.mining import Progress, mine_split, responses_together
from icalib.data.negatives import NEGATIVE_SAMPLERS, ParallelMap
from icalib.data.pool_folder import PoolWriter, whole_folder
from icalib.data.pools import prepared_inputs, read_pool_set, split_file
from icalib.data.protocols import PROTOCOLS, unmet, with_protocol
from icalib.data.schema import POOLS_FILE, POOLS_VERSION, SPLITS, PoolSet
from icalib.data.settings import PrepareSettings
from icalib.data.sources.base import Source
from icalib.data.sources.readers import READERS, open_source
from icalib.data.unanswerable import Removal

Note = Callable[[str], None]
"""note(text): something that the user should know and that stops nothing."""


DEFAULT_SETTINGS = PrepareSettings()


def prepare(
    source_path: str | Path,
    out: str | Path,
    settings: PrepareSettings = DEFAULT_SETTINGS,
    *,
    logs: str | Path | None = None,
    fresh: bool = False,
    parallel_map: ParallelMap = map,
    progress: Progress = lambda stage, done, total: None,
    note: Note = lambda text: None,
) -> PoolSet:
    """Write a source's pools to the folder `out`.

    A source that holds ready pools keeps their candidates, or the first `num_candidates` of ranked lists. The order of
    candidates is always shuffled by seed, so a position says nothing. The same inputs again return the existing folder.

    Args:
        source_path: a file or folder that `open_source` can read.
        out: the pool folder; written whole or not at all.
        settings: what the pools depend on besides the source.
        logs: dialogues outside the pools, in any format with whole dialogues, for post-training; they may contain
            those of the source.
        fresh: replace a pool folder of other inputs; a folder of anything else is never touched.
        parallel_map: runs the mining tasks: receives `mine_block` and the blocks, returns the results in order.
        progress: receives the stages `read`, `mine <split>` and `write <split>`.
        note: receives messages about what is unusual but no error.

    Raises:
        SettingError: an unknown reader or sampler, or `out` holds something else.
        DataError: a record that is not valid (without `skip_bad`), a dialogue in two splits, too few responses, logs
            without dialogues.
        StorageError: the disk refused a write.
    """
    source_path, out = Path(source_path), Path(out)
    NEGATIVE_SAMPLERS.load(settings.negative_sampler)  # raises before anything is read
    pull(source_path)
    pull(out)
    source = open_source(source_path, settings.format, settings.reading())
    settings = with_protocol(settings, source.reader)
    source_digest = source.digest()
    min_context = shortest_context(source, settings)
    inputs = {
        "version": POOLS_VERSION,
        "source_digest": source_digest,
        **settings.inputs(),
        "min_context": min_context,
    }
    if source.pools is not None and not source.keeps_all_candidates:
        inputs["right_answers"] = "together"  # earlier versions made a pool of each
    inputs["blocks"] = "random"  # in earlier versions they were consecutive dialogues
    log_source = None
    if logs is not None:
        pull(Path(logs))
        log_source = open_source(logs, options=settings.reading())
        inputs["logs_digest"] = log_source.digest()
    _show_sources(source, log_source, settings, note)
    if out.exists() and not (out / POOLS_FILE).is_file():
        raise SettingError(f"{out} exists and is not a pool folder. Choose another name, or remove it yourself.")
    if out.exists() and not fresh:
        pool_set = _existing(out, inputs, note)
        push(out)  # in case the last upload did not complete
        return pool_set
    rejected_path = out.with_name(f"{out.name}.rejected.jsonl")
    with whole_folder(out) as folder:
        rejected = RejectedRecords(folder / "rejected.jsonl") if settings.skip_bad else None
        if min_context < settings.min_context:
            note("the dialogues have two turns: a response needs one utterance before it")
        corpus = read_corpus(source, folder, settings, min_context, rejected, progress)
        for what, number in source.left_out.items():
            note(f"left out: {number} {what}")
        for message in hold_out(corpus, folder, settings):
            note(message)
        for split in SPLITS:
            if not corpus.num_rows[split]:
                note(f"there are no {split} pools")
        writer = PoolWriter(folder, settings.seed, inputs)
        together = responses_together({split: corpus.spills[split].num_rows for split in corpus.mined}, settings)
        for split in SPLITS:
            negatives = None
            if split in corpus.mined:
                spill = corpus.spills[split]
                negatives = mine_split(spill, folder, split, settings, parallel_map, progress, together=together)
            removal = None
            if settings.unanswerable:
                removal = Removal(corpus.spills[split], split, settings.unanswerable, settings.seed)
            writer.write(split, corpus, negatives, progress, removal)
        num_unanswerable = {split: number for split, number in writer.num_unanswerable.items() if number}
        if num_unanswerable:
            counts = ", ".join(f"{number} {split}" for split, number in num_unanswerable.items())
            note(f"pools without a right candidate: {counts}")
        num_several_right = {split: number for split, number in writer.num_several_right.items() if number}
        if num_several_right:
            counts = ", ".join(f"{number} {split}" for split, number in num_several_right.items())
            note(f"pools with several right candidates: {counts}")
        if copies := writer.leaks.num_copies_across_splits():
            note(f"{copies} (context, response) texts of validation or test occur word for word in another split")
        num_logs = write_logs(log_source, folder / LOGS_FILE, rejected, progress) if log_source else 0
        num_rejected = rejected.count if rejected else 0
        pool_set = PoolSet(
            version=POOLS_VERSION,
            name=out.name,
            digest=content_digest(writer.digests),
            source=location(source_path),
            source_digest=source_digest,
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
            num_unanswerable=num_unanswerable,
            num_several_right=num_several_right,
            mean_right=writer.mean_right(),
            num_dialogues=writer.leaks.num_dialogues(),
            num_rejected=num_rejected,
            num_logs=num_logs,
            logs_digest=str(inputs.get("logs_digest", "")),
            created_with=f"icalib {__version__}",
        )
        if settings.protocol:
            for difference in unmet(pool_set, PROTOCOLS[settings.protocol]):
                note(f"not as the protocol {settings.protocol} has it: {difference}")
        if rejected:
            rejected.move_to(rejected_path)
        if num_rejected:
            note(f"{num_rejected} records were left out; see {rejected_path}")
        pool_set = pool_set.model_copy(update={"files": _files(folder)}).sealed()
        write_json(folder / POOLS_FILE, pool_set.model_dump())
    push(rejected_path)
    push(out)
    return pool_set


def _show_sources(source: Source, logs: Source | None, settings: PrepareSettings, note: Note) -> None:
    """Show what was detected and guessed.

    Raises:
        SettingError: an option that neither reader takes.
    """
    taken: set[str] = set()
    for name, opened in (("", source), ("logs: ", logs)):
        if opened is not None:
            taken |= {*READERS.load(opened.reader).options}
            if opened.understood:
                note(f"{name}format {opened.reader}; {opened.understood}")
    for option, value in settings.reading().items():
        if value and option not in taken:
            readers = [name for name in READERS.names() if option in READERS.load(name).options]
            raise SettingError(
                f"--{option} has no meaning for the format {source.reader}. The formats {', '.join(readers)} take it. "
                "Leave it out, or name another format with --format."
            )


def _files(folder: Path) -> dict[str, dict[str, Any]]:
    """Return size and digest of the files that a pool folder keeps."""
    names = [*(split_file(split) for split in SPLITS), LOGS_FILE]
    return {name: facts_of(folder / name) for name in names if (folder / name).is_file()}


def _had_blocks(pool_set: PoolSet, inputs: Mapping[str, Any]) -> bool:
    """Return whether negatives of a folder of an earlier version were mined in more than one block a split."""
    equal_blocks = NEGATIVE_SAMPLERS.load(pool_set.negative_sampler).equal_blocks
    return equal_blocks or max(pool_set.num_pools.values()) > inputs["mining_block"]


def _existing(out: Path, inputs: dict[str, Any], note: Note) -> PoolSet:
    try:
        pool_set = read_pool_set(out, verify=True)
        if not pool_set.files:  # of an earlier version
            pool_set = pool_set.model_copy(update={"files": _files(out)}).sealed()
            write_json(out / POOLS_FILE, pool_set.model_dump())
    except DataError as error:
        raise SettingError(f"{error} Add --fresh to replace it.") from error
    earlier = prepared_inputs(out)
    if pool_set.negative_sampler == "source" or ("blocks" not in earlier and not _had_blocks(pool_set, inputs)):
        inputs, earlier = ({name: own[name] for name in own if name != "blocks"} for own in (inputs, earlier))
    if earlier != inputs:
        names = sorted({*inputs, *earlier})
        changed = ", ".join(name for name in names if earlier.get(name) != inputs.get(name))
        raise SettingError(
            f"{out} was prepared from other inputs ({changed}). Choose another folder, or add --fresh to replace it."
        )
    note(f"{out} exists already and has the same inputs; no action needed")
    for split in SPLITS:
        if pool_set.num_pools["train"] and not pool_set.num_pools[split]:
            note(f"there are no {split} pools; with --fresh some of the training pools are used for it")
    return pool_set
