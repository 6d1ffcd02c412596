"""Small corpora in the raw formats that the papers used."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from icalib.data.prepare import prepare
from icalib.data.settings import PrepareSettings
from icalib.data.simulate import simulate


def _dialogues(folder: Path, number: int, seed: int) -> list[dict[str, Any]]:
    path = folder / "dialogues.jsonl"
    simulate(path, num_dialogues=number, seed=seed)
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_msdialog(folder: Path, number: int = 60) -> Path:
    """MSDialog's JSON: intents in `tags` of a third of the dialogues, every agent's reply an accepted answer."""
    path = folder / "MSDialog-Complete.json"
    dialogues = enumerate(_dialogues(folder, number, 1))
    path.write_text(json.dumps({str(n): _forum(one, "tags", has_intents=n % 3 == 0) for n, one in dialogues}))
    return path


def write_mantis(folder: Path, number: int = 60) -> Path:
    """MANtIS' JSON, with a file for each split; a third of the training dialogues have intents."""
    (folder / "mantis").mkdir()
    files: dict[str, dict[str, Any]] = {"train": {}, "dev": {}, "test": {}}
    for n, one in enumerate(_dialogues(folder, number, 2)):
        split = {"train": "train", "validation": "dev", "test": "test"}[one["split"]]
        files[split][str(n)] = _forum(one, "intent", has_intents=split == "train" and n % 3 == 0)
    for split, content in files.items():
        (folder / "mantis" / f"merged_{split}_intents.json").write_text(json.dumps(content))
    return folder / "mantis"


def _forum(dialogue: dict[str, Any], intents: str, *, has_intents: bool) -> dict[str, Any]:
    def turn(one: dict[str, Any]) -> dict[str, Any]:
        known = one["intents"] if has_intents else []
        named = " ".join(known) if intents == "tags" else known
        agent = one["speaker"] == "agent"
        own = {"vote": 0, "affiliation": ""} if intents == "tags" else {"votes": 0, "user_name": one["speaker"]}
        speaker = "Agent" if agent else "User"
        return {"actor_type": speaker, "utterance": one["text"], intents: named, "is_answer": int(agent), **own}

    return {"title": "", "category": dialogue["domain"], "utterances": [turn(one) for one in dialogue["utterances"]]}


def write_udc(folder: Path, number: int = 60) -> Path:
    """UDC's CSV: dialogues in train, ready pools in valid and test."""
    (folder / "udc").mkdir()
    dialogues = _dialogues(folder, number, 3)
    answers = [one["utterances"][-1]["text"] for one in dialogues]
    for name, split in (("train", "train"), ("valid", "validation"), ("test", "test")):
        members = [index for index, one in enumerate(dialogues) if one["split"] == split]
        with (folder / "udc" / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            others = [f"Distractor_{index}" for index in range(9)]
            writer.writerow(["Context", "Utterance", "Label"] if name == "train" else
                            ["Context", "Ground Truth Utterance", *others])  # fmt: skip
            for index in members:
                turns = [one["text"] for one in dialogues[index]["utterances"]]
                context = " ".join(f"{text} __eou__ __eot__" for text in turns[:-1])
                wrong = [text for text in dict.fromkeys(answers) if text != turns[-1]][index % 5 :][:9]
                writer.writerow([context, turns[-1], *(["1"] if name == "train" else wrong)])
    return folder / "udc"


WRITERS: Mapping[str, Callable[[Path, int], Path]] = {
    "MSDialog": write_msdialog,
    "MANtIS": write_mantis,
    "UDC": write_udc,
}


class ProtocolPools:
    """Pools that are made by a protocol from a raw corpus, once each; the names of their folders say nothing."""

    def __init__(self, folder: Path, number: int) -> None:
        self._folder, self._number = folder, number
        self._made: dict[tuple[str, str], Path] = {}

    def __call__(self, protocol: str, corpus: str) -> Path:
        if (protocol, corpus) not in self._made:
            raw, out = (self._folder / f"{name}-{len(self._made)}" for name in ("raw", "pools"))
            raw.mkdir()
            source = WRITERS[corpus](raw, self._number)
            prepare(source, out, PrepareSettings.model_validate({"protocol": protocol}))
            self._made[protocol, corpus] = out
        return self._made[protocol, corpus]


def write_ranking(
    path: Path, num_right: Callable[[int], int], *, num_wrong: int = 4, queries: range = range(60)
) -> Path:
    """FlagEmbedding's format: queries with so many right answers each, by their number."""
    with path.open("w") as file:
        for query in queries:
            right = [f"right {query} {index}" for index in range(num_right(query))]
            wrong = [f"wrong {query} {index}" for index in range(num_wrong)]
            file.write(json.dumps({"query": f"question {query}", "pos": right, "neg": wrong}) + "\n")
    return path
