"""The corpora of the papers, in the forms in which they were published.

`msdialog` (Qu et al. 2018) and `mantis` (Penha et al. 2019): one JSON object from dialogue id to

    {"title", "category", "utterances": [{"actor_type": "User" | "Agent", "utterance": str, "is_answer": 0 | 1, ...}]}

`is_answer` marks the accepted answer. MSDialog has intents in `tags` ("OQ GG") and no splits; MANtIS has them in lists
called `intent`, on some dialogues, and a file for each split, merged_{train,dev,test}[_intents].json.

`mantis-tsv`, MANtIS' pools: `label \\t utterance_1 \\t ... \\t utterance_n \\t candidate`; consecutive lines with one
context are a pool.

`udc`, the Ubuntu Dialogue Corpus (Lowe et al. 2015) as CSV. train: `Context,Utterance,Label` (the rows labelled 1 are
dialogues); valid and test: `Context,Ground Truth Utterance,Distractor_0..8` (ready pools). `__eou__` ends an utterance,
`__eot__` a speaker's turn.

`icast`, its authors' folders (Deng et al. 2023): train, valid, test and optionally unlabeled, each with

    context.tsv            utterance, tags, utterance, tags, ... (tags joined by `_`, may be empty);
                           in `unlabeled` utterances only
    answer.tsv             the right answer
    negative_sampling.tsv  the wrong ones, tab-separated, short lines padded with empty fields

one line a pool, aligned by line number. `unlabeled` pools are training pools without intents, so they become labelled
last.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import groupby, islice, zip_longest
from pathlib import Path
from typing import Any

from icalib.core.errors import DataError
from icalib.data.schema import Dialogue, Pool, Split
from icalib.data.sources.files import (
    all_lines,
    files_in,
    first_line,
    json_members,
    plain_name,
    read_lines,
    required_files,
    required_split,
    split_in_name,
)
from icalib.data.sources.records import Raw, Reader, Source, alternating, build, joined, pool_from, records_in, spaced
from icalib.data.sources.rows import read_rows, row_of
from icalib.data.splits import text_key

_MANTIS_FIELDS = frozenset({"intent", "votes", "user_name"})
"""Fields of an utterance that MSDialog lacks, which has `tags`, `vote` and `affiliation` instead."""
_FORUM_NAMES = {"actor_type": "speaker", "utterance": "text", "is_answer": "is_answer"}
_UDC_TRAIN = "Context,Utterance,Label"
_UDC_POOLS = "Context,Ground Truth Utterance,"
_ICAST_FOLDERS: dict[str, Split] = {"train": "train", "unlabeled": "train", "valid": "validation", "test": "test"}
_ICAST_FILES = ("context.tsv", "answer.tsv", "negative_sampling.tsv")


def _open_msdialog(path: Path) -> Source:
    """Open one file, or a folder of JSON files. Dialogues of MSDialog-Complete that are also in MSDialog-Intent are
    read once, with their intents.
    """
    files = tuple(sorted(required_files(path, ".json"), key=lambda file: not _has_intents(file)))
    with_intents: set[int] = set()
    left_out = Counter[str]()

    def dialogue(raw: Raw) -> Dialogue | None:
        source = "msdialog" if len(files) == 1 else plain_name(raw.path).removesuffix(".json")
        found = _forum_dialogue(raw, source, None, "tags")
        question = text_key(found.utterances[0].text)
        if _has_intents(raw.path):
            with_intents.add(question)
        elif question in with_intents:
            left_out["dialogues that another file has with intents"] += 1
            return None
        return found

    return Source(files, records_in(files, json_members, dialogue), left_out=left_out)


def _open_mantis(path: Path) -> Source:
    """Open one file, or a folder of them; where it holds both, the files with intents are read."""
    files = required_files(path, ".json")
    files = tuple(filter(_has_intents, files)) or files

    def dialogue(raw: Raw) -> Dialogue:
        return _forum_dialogue(raw, "mantis", split_in_name(raw.path), "intent")

    return Source(files, records_in(files, json_members, dialogue))


def _has_intents(file: Path) -> bool:
    return "intent" in plain_name(file)


def _detects_forum(path: Path, *, mantis: bool) -> bool:
    fields = _forum_fields(path)
    return "actor_type" in fields and bool(fields & _MANTIS_FIELDS) == mantis


def _forum_fields(path: Path) -> frozenset[str]:
    for file in files_in(path, ".json")[:1]:
        begun = [raw.text.startswith("{") for raw in islice(read_lines(file), 2)]  # JSON Lines begin a second object
        raw = next(json_members(file), None) if begun in ([True], [True, False]) else None
        value = raw.value[1] if raw else None
        if isinstance(value, dict) and isinstance(value.get("utterances"), list):
            return frozenset(name for turn in value["utterances"] if isinstance(turn, dict) for name in turn)
    return frozenset()


def _forum_dialogue(raw: Raw, source: str, split: Split | None, intent_field: str) -> Dialogue:
    key, value = raw.value
    if not isinstance(value, dict) or not isinstance(value.get("utterances"), list):
        raise raw.error("found no list of utterances", field=f"{key}.utterances")
    record = {
        "dialog_id": f"{source}-{split}-{key}" if split else f"{source}-{key}",
        "source": source,
        "domain": value.get("category", ""),
        "split": split,
        "utterances": [_forum_utterance(utterance, intent_field) for utterance in value["utterances"]],
    }
    names = {"speaker": "actor_type", "text": "utterance", "intents": intent_field, "domain": "category"}
    return build(Dialogue, record, raw, names)


def _forum_utterance(value: Any, intent_field: str) -> Any:
    if not isinstance(value, dict):
        return value
    ours = {name: spaced(value[field]) for field, name in _FORUM_NAMES.items() if field in value}
    if isinstance(actor := ours.get("speaker"), str):
        ours["speaker"] = actor.lower()
    if intent_field in value:
        tags = value[intent_field]  # one string, such as "OQ GG" or "FD_PA", or a list
        ours["intents"] = [tag for tag in re.split(r"[\s_]+", tags) if tag] if isinstance(tags, str) else tags
    return ours


def _open_mantis_tsv(path: Path) -> Source:
    files = required_files(path, ".tsv")
    for file in files:
        required_split(file)
    return Source(files, pools=records_in(files, _mantis_groups, _mantis_pool, "pool_id"))


def _detects_mantis_tsv(path: Path) -> bool:
    first = [first_line(file).split("\t") for file in files_in(path, ".tsv")]
    return any(fields[0] in ("0", "1") and len(fields) > 2 for fields in first)


def _mantis_groups(file: Path) -> Iterator[Raw]:
    """Join the consecutive lines of one context, which are a pool."""
    for _, lines in groupby(read_lines(file), key=lambda line: _mantis_parts(line)[1]):
        yield joined(list(lines))


def _mantis_parts(line: Raw) -> tuple[str, str, str]:
    label, _, rest = line.text.partition("\t")
    context, _, candidate = rest.rpartition("\t")
    return label.strip(), context, candidate


def _mantis_pool(raw: Raw) -> Pool:
    right, wrong, turns = list[str](), list[str](), ""
    for line in raw.value:
        label, turns, candidate = _mantis_parts(line)
        if label not in ("0", "1"):
            raise line.error(f'found label "{label[:20]}", expected 0 or 1', field="label")
        if not turns or not candidate.strip():
            raise line.error("found no context or no candidate", field="candidate")
        (right if label == "1" else wrong).append(candidate)
    if not right:
        found = f"found no right candidate in the {len(raw.value)} lines of one context, expected 1 or more"
        raise raw.error(found, field="label")
    split = required_split(raw.path)
    context = alternating(spaced(text) for text in turns.split("\t") if text.strip())
    return pool_from(raw, f"mantis-{split}-{raw.line}", split, context, right, wrong, "mantis")


def _open_udc(path: Path) -> Source:
    files = required_files(path, ".csv")
    dialogue_files = [file for file in files if first_line(file) == _UDC_TRAIN]
    pool_files = [file for file in files if file not in dialogue_files]
    for file in pool_files:
        if not (header := first_line(file)).startswith(_UDC_POOLS):
            cure = f'Expected "{_UDC_TRAIN}" or "{_UDC_POOLS}Distractor_0,...".'
            raise DataError(f'found the header "{header[:60]}"', cure, path=file, line=1)
        required_split(file)
    return Source(
        files,
        records_in(dialogue_files, read_rows, _udc_dialogue),
        records_in(pool_files, read_rows, _udc_pool, "pool_id"),
        last_turn_only=True,
    )


def _detects_udc(path: Path) -> bool:
    headers = map(first_line, files_in(path, ".csv"))
    return any(header == _UDC_TRAIN or header.startswith(_UDC_POOLS) for header in headers)


def _udc_turns(context: str) -> list[dict[str, Any]]:
    turns = [turn for turn in context.split("__eot__") if turn.replace("__eou__", "").strip()]
    return [
        {**turn, "text": spaced(text)}
        for turn in alternating(turns)
        for text in turn["text"].split("__eou__")
        if text.strip()
    ]


def _udc_response(text: str) -> str:
    return spaced(text.replace("__eou__", " ").replace("__eot__", " "))


def _udc_dialogue(raw: Raw) -> Dialogue | None:
    context, response, label = row_of(raw).values()
    if label.strip() not in ("0", "1", "0.0", "1.0"):
        raise raw.error(f'found "{label[:20]}", expected 0 or 1', field="Label")
    if float(label) == 0:
        return None
    split = split_in_name(raw.path)
    value = {
        "dialog_id": f"udc-{split or 'row'}-{raw.line}",
        "source": "udc",
        "domain": "ubuntu",
        "split": split,
        "utterances": [*_udc_turns(context), {"speaker": "agent", "text": _udc_response(response)}],
    }
    return build(Dialogue, value, raw, {"utterances": "Context", "text": "Utterance"})


def _udc_pool(raw: Raw) -> Pool:
    context, right, *wrong = row_of(raw).values()
    split = required_split(raw.path)
    responses = map(_udc_response, wrong)
    pool_id = f"udc-{split}-{raw.line}"
    return pool_from(raw, pool_id, split, _udc_turns(context), [_udc_response(right)], responses, "ubuntu")


def _open_icast(path: Path) -> Source:
    folders = [path / name for name in _ICAST_FOLDERS if (path / name).is_dir()]
    files = tuple(_icast_file(folder, name) for folder in folders for name in _ICAST_FILES)
    if not files:
        found = f"found none of the folders {', '.join(_ICAST_FOLDERS)}"
        raise DataError(found, "Name the folder that holds them.", path=path)
    return Source(files, pools=records_in(folders, _icast_lines, _icast_pool, "pool_id"), accepted_only=True)


def _detects_icast(path: Path) -> bool:
    return any((path / "train" / name).is_file() for name in ("context.tsv", "context.tsv.gz"))


def _icast_file(folder: Path, name: str) -> Path:
    for file in (folder / name, folder / f"{name}.gz"):
        if file.is_file():
            return file
    raise DataError(f"found no {name}", "Each of the folders needs context, answer and negatives.", path=folder)


def _icast_lines(folder: Path) -> Iterator[Raw]:
    files = [_icast_file(folder, name) for name in _ICAST_FILES]
    # blank lines too, since the files are aligned by line number
    for number, row in enumerate(zip_longest(*map(all_lines, files)), 1):
        if None in row:
            raise DataError(
                f"ends before line {number}, but another file of the folder continues",
                f"{', '.join(_ICAST_FILES)} must have the same number of lines.",
                path=files[row.index(None)],
                line=number,
            )
        texts = [line.text for line in row]
        yield Raw(files[0], number, "\n".join(texts), texts)


def _icast_pool(raw: Raw) -> Pool:
    context, answer, negatives = raw.value
    folder = raw.path.parent.name
    fields = context.split("\t")
    if folder == "unlabeled":
        texts, tags = fields, [""] * len(fields)
    elif len(fields) % 2:
        found = f"found {len(fields)} fields, expected an even number: utterance, tags, ..."
        raise raw.error(found, field="context.tsv")
    else:
        texts, tags = fields[::2], fields[1::2]
    utterances = [
        utterance | {"intents": [name for name in tag.strip().split("_") if name]}
        for utterance, tag in zip(alternating(map(spaced, texts)), tags, strict=True)
    ]
    if not answer.strip():
        raise raw.error("found an empty answer", field="answer.tsv")
    pool_id, split = f"icast-{folder}-{raw.line}", _ICAST_FOLDERS[folder]
    return pool_from(raw, pool_id, split, utterances, [answer], negatives.split("\t"), "icast")


msdialog = Reader(_open_msdialog, partial(_detects_forum, mantis=False))
mantis = Reader(_open_mantis, partial(_detects_forum, mantis=True))
mantis_tsv = Reader(_open_mantis_tsv, _detects_mantis_tsv)
udc = Reader(_open_udc, _detects_udc)
icast = Reader(_open_icast, _detects_icast)
