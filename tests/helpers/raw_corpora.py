"""Small corpora in the raw formats that the papers used."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

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
