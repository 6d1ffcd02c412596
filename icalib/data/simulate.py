"""A simulated support-desk corpus for which the best possible R@1 is known.

A user has a device with a symptom; each of the 12 (device, symptom) pairs has a first fix, which the user tries, and an
alternative, for which the desk sends a technician, a part or to the workshop. Both are named in words that the user
doesn't use, so that the association has to be learned. The intent of the user's last utterance decides the type of
reply:

    unclear_question, without the device or the symptom → information_request for what is missing
    original_question, further_details                  → potential_answer, the first fix
    negative_feedback                                   → escalation, the alternative
    positive_feedback                                   → greetings_gratitude

Replies are canned: the same situation always gets the same text, so a pool has exactly one right candidate. Users
word everything in many ways. With probability `label_noise` a reply is replaced by one drawn from all the others, with
probability `intent_noise` an intent by another one.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from icalib.core.errors import SettingError
from icalib.core.files import atomic_write, write_json
from icalib.core.seeding import child_seed
from icalib.core.storage import push
from icalib.core.yaml_text import parse_yaml
from icalib.data.contexts import context_responses
from icalib.data.schema import SPLITS, Dialogue, Split, Utterance

SPLIT_FRACTIONS = (0.7, 0.15, 0.15)

_DESK = parse_yaml(Path(__file__).with_name("support_desk.yaml").read_text(encoding="utf-8"))
DEVICES: dict[str, list[str]] = _DESK["devices"]
SYMPTOMS: dict[str, list[str]] = _DESK["symptoms"]
FIXES: dict[tuple[str, str], list[str]] = {
    (device, symptom): fixes for device, by_symptom in _DESK["fixes"].items() for symptom, fixes in by_symptom.items()
}
"""The first fix and its alternative."""
_TEMPLATES: dict[str, list[str]] = _DESK["templates"]

INTENTS = (
    "original_question",
    "unclear_question",
    "information_request",
    "further_details",
    "potential_answer",
    "escalation",
    "positive_feedback",
    "negative_feedback",
    "greetings_gratitude",
)
REPLIES: tuple[str, ...] = (
    *(fix for fixes in FIXES.values() for fix in fixes),
    *_DESK["ask_symptom"].values(),
    *_DESK["ask_device"].values(),
    *_DESK["closing"].values(),
)
"""Every reply that a pool may contain; the greeting is always the second utterance, so it is never a response."""


class Simulation(BaseModel):
    """The settings of a simulated corpus and its best possible R@1; stored beside it as `<name>.truth.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_dialogues: int
    seed: int
    intent_noise: float
    label_noise: float
    num_responses: dict[str, int]
    best_reachable: dict[str, float]
    """R@1 by split of a ranker that knows every rule: the fraction of responses that the noise did not replace."""


Turn = tuple[Utterance, str]
"""An utterance, and the text that it would have without noise (empty for the user's)."""


class _Desk(NamedTuple):
    """One user's device and symptom, and the noise of replies and intents."""

    rng: random.Random
    device: str
    symptom: str
    intent_noise: float
    label_noise: float

    def user(self, template: str, intent: str) -> Turn:
        text = self.rng.choice(_TEMPLATES[template]).format(
            device=self.rng.choice(DEVICES[self.device]), symptom=self.rng.choice(SYMPTOMS[self.symptom])
        )
        return Utterance(speaker="user", text=text, intents=(self._noisy(intent),)), ""

    def agent(self, right: str, intent: str) -> Turn:
        reply = right
        if self.rng.random() < self.label_noise:
            reply = self.rng.choice([other for other in REPLIES if other != right])
        return Utterance(speaker="agent", text=reply, intents=(self._noisy(intent),)), right

    def _noisy(self, intent: str) -> str:
        if self.rng.random() < self.intent_noise:
            return self.rng.choice([other for other in INTENTS if other != intent])
        return intent


def simulate(
    path: str | Path, *, num_dialogues: int = 600, seed: int = 1, intent_noise: float = 0.05, label_noise: float = 0.05
) -> Simulation:
    """Write a corpus in icalib's JSONL format, and its `Simulation` beside it (`<name>.truth.json`).

    Dialogues have about 2.3 responses each; 70, 15 and 15 % of them are for training, validation and test. The noises
    are the probabilities that an utterance's intent is another one, and that a reply is a wrong one.
    """
    for name, noise in (("intent_noise", intent_noise), ("label_noise", label_noise)):
        if not 0 <= noise < 1:
            raise SettingError(f"{name} is {noise}. Give a probability of at least 0 and below 1.")
    if num_dialogues < 20:
        raise SettingError(f"num_dialogues is {num_dialogues}. Give 20 or more, so that every split has some.")
    path = Path(path)
    truth = path.with_name(f"{path.name}.truth.json")
    if path.exists() and not truth.exists():
        raise SettingError(f"{path} exists and isn't of `simulate`. Choose another name, or remove it yourself.")
    responses, untouched = Counter[str](), Counter[str]()
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for dialogue, right in _dialogues(num_dialogues, seed, intent_noise, label_noise):
            file.write(json.dumps(dialogue.model_dump(), ensure_ascii=False) + "\n")
            for pair in context_responses(dialogue):
                split = str(dialogue.split)
                responses[split] += 1
                untouched[split] += pair.response.text == right[pair.turn]
    simulation = Simulation(
        num_dialogues=num_dialogues,
        seed=seed,
        intent_noise=intent_noise,
        label_noise=label_noise,
        num_responses={split: responses[split] for split in SPLITS},
        best_reachable={split: untouched[split] / responses[split] for split in SPLITS},
    )
    write_json(truth, simulation.model_dump())
    push(path)
    push(truth)
    return simulation


def _dialogues(
    num_dialogues: int, seed: int, intent_noise: float, label_noise: float
) -> Iterator[tuple[Dialogue, list[str]]]:
    """Yield dialogues, each with the texts that its turns would have without noise."""
    for number, split in enumerate(_splits(num_dialogues, seed)):
        rng = random.Random(child_seed(seed, "simulate", number))
        device, symptom = rng.choice(list(FIXES))
        turns = list(_turns(_Desk(rng, device, symptom, intent_noise, label_noise)))
        dialogue = Dialogue(
            dialog_id=f"desk-{number:06d}",
            source="simulated",
            domain="support desk",
            split=split,
            utterances=tuple(utterance for utterance, _ in turns),
        )
        yield dialogue, [right for _, right in turns]


def _splits(num_dialogues: int, seed: int) -> list[Split]:
    num_validation, num_test = (round(fraction * num_dialogues) for fraction in SPLIT_FRACTIONS[1:])
    sizes = (num_dialogues - num_validation - num_test, num_validation, num_test)
    splits: list[Split] = [split for split, size in zip(SPLITS, sizes, strict=True) for _ in range(size)]
    random.Random(child_seed(seed, "splits")).shuffle(splits)
    return splits


def _turns(desk: _Desk) -> Iterator[Turn]:
    rng = desk.rng
    first_fix, alternative = FIXES[desk.device, desk.symptom]
    if rng.random() < 0.5:
        yield desk.user("hello", "greetings_gratitude")
        hello = _DESK["hello_reply"]
        yield Utterance(speaker="agent", text=hello, intents=("greetings_gratitude",)), hello
    opening = rng.choice(("question_both", "question_no_symptom", "question_no_device"))
    is_clear = opening == "question_both"
    yield desk.user(opening, "original_question" if is_clear else "unclear_question")
    if not is_clear:
        no_symptom = opening == "question_no_symptom"
        request = _DESK["ask_symptom"][desk.device] if no_symptom else _DESK["ask_device"][desk.symptom]
        yield desk.agent(request, "information_request")
        yield desk.user("details", "further_details")
    yield desk.agent(first_fix, "potential_answer")
    if rng.random() < 0.5:
        yield desk.user("negative", "negative_feedback")
        yield desk.agent(alternative, "escalation")
    if rng.random() < 0.6:
        yield desk.user("positive", "positive_feedback")
        yield desk.agent(_DESK["closing"][desk.device], "greetings_gratitude")
