"""A simulated support-desk corpus for which the best possible R@1 is known.

A user has a device with a symptom; each of the 12 (device, symptom) pairs has a first fix and an alternative, named in
words that the user doesn't use, so that the association has to be learned. The intent of the user's last utterance
decides the type of reply:

    original_question without the device or the symptom → information_request for what is missing
    original_question with both, further_details        → potential_answer, the first fix
    negative_feedback                                   → potential_answer, the alternative
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
from icalib.core.files import whole_file, write_json
from icalib.core.seeding import child_seed
from icalib.data.contexts import context_responses
from icalib.data.schema import SPLITS, Dialogue, Split, Utterance

SPLIT_FRACTIONS = (0.7, 0.15, 0.15)

DEVICES: dict[str, tuple[str, ...]] = {
    "printer": ("printer", "inkjet", "laser printer"),
    "laptop": ("laptop", "notebook", "thinkpad"),
    "router": ("router", "wifi box", "gateway"),
    "phone": ("phone", "smartphone", "handset"),
}
SYMPTOMS: dict[str, tuple[str, ...]] = {
    "dead": (
        "does not turn on any more",
        "stays dead when i press the button",
        "shows no sign of life",
        "will not start since yesterday",
    ),
    "offline": (
        "can not connect to anything",
        "keeps losing its connection",
        "says it is offline",
        "is not found by my other machines",
    ),
    "noisy": (
        "makes a terrible noise",
        "buzzes loudly all the time",
        "rattles and hums like crazy",
        "sounds awful as soon as it runs",
    ),
}
FIXES: dict[tuple[str, str], tuple[str, str]] = {
    ("printer", "dead"): (
        "open the rear hatch and seat the fuser unit firmly again",
        "swap the fuse beside the mains inlet for a two ampere one",
    ),
    ("printer", "offline"): (
        "delete the old queue and add it by its fixed address",
        "update the spooler service and clear its pending jobs folder",
    ),
    ("printer", "noisy"): (
        "put two drops of silicone oil on the carriage rail",
        "replace the worn pickup roller, part number seven in the manual",
    ),
    ("laptop", "dead"): (
        "hold escape and refresh for ten seconds to reset the controller",
        "take out the memory module and put it into the second slot",
    ),
    ("laptop", "offline"): (
        "reinstall the wireless driver from the vendor's recovery partition",
        "disable airplane mode in the firmware menu and save the change",
    ),
    ("laptop", "noisy"): (
        "blow the dust out of the fan grille with canned air",
        "apply fresh thermal paste below the heat sink",
    ),
    ("router", "dead"): (
        "use the twelve volt adapter, the nine volt one is too weak",
        "flash the rescue image over the yellow port with tftp",
    ),
    ("router", "offline"): (
        "set the channel to eleven and renew the lease",
        "ask your provider to provision the line profile once more",
    ),
    ("router", "noisy"): (
        "move it away from the cordless base station and its charger",
        "exchange the cheap power brick, its coil is vibrating",
    ),
    ("phone", "dead"): (
        "leave the battery on a slow charger for one whole night",
        "keep volume down and home together until the logo appears",
    ),
    ("phone", "offline"): (
        "remove the sim card, clean its contacts and insert it again",
        "enter the access point name of your carrier by hand",
    ),
    ("phone", "noisy"): (
        "brush the earpiece mesh gently with a soft dry toothbrush",
        "switch off the dolby equaliser in the audio settings",
    ),
}
ASK_SYMPTOM: dict[str, str] = {
    "printer": "please tell me what exactly goes wrong when you print a page",
    "laptop": "what happens on the screen when you lift the lid of it",
    "router": "how do the lamps on its front blink at the moment",
    "phone": "could you describe how it behaves when somebody calls you",
}
ASK_DEVICE: dict[str, str] = {
    "dead": "which product is it that gets no power, and how old",
    "offline": "which product drops out of the network, please name the model",
    "noisy": "which product is it that disturbs you with such sounds",
}
CLOSING: dict[str, str] = {
    "printer": "wonderful, enjoy your clean pages and come back any time",
    "laptop": "good to hear, have a nice day at your desk",
    "router": "splendid, happy surfing and greetings to the whole household",
    "phone": "perfect, then you can call your friends again, bye",
}
HELLO_REPLY = "welcome to the support desk, how may i help you today"

HELLO = (
    "hello, is somebody there who can help me",
    "hi there, i need some support please",
    "good morning, i hope this is the right place",
    "hey, do you have a minute for me",
)
QUESTION_BOTH = (
    "my {device} {symptom}, what should i do",
    "i have a problem, the {device} {symptom}",
    "can you help, since today my {device} {symptom}",
    "the {device} in our office {symptom}, any idea",
)
QUESTION_NO_SYMPTOM = (
    "there is something wrong with my {device}, what now",
    "my {device} is broken, can you help me with it",
    "i have got trouble with the {device} again",
    "how do i get my {device} repaired quickly",
)
QUESTION_NO_DEVICE = (
    "one of my things {symptom}, what can i do",
    "it {symptom}, do you know what this may be",
    "help please, what i bought from you {symptom}",
    "my new toy {symptom}, is there a remedy",
)
DETAILS = (
    "it is the {device} and it {symptom}",
    "well, the {device} {symptom}, that is all i know",
    "my {device}, bought last year, {symptom}",
    "the {device} {symptom}, even after a reboot",
)
POSITIVE = (
    "great, that did it, the {device} is fine now",
    "thank you so much, my {device} works again",
    "super, problem solved, the {device} is like new",
    "yes, this was it, i am happy with my {device}",
)
NEGATIVE = (
    "i tried that but no luck with the {device}",
    "no change at all, the {device} is as bad as before",
    "sadly this did not help my {device}, anything else",
    "done, but the {device} still has the same trouble",
)

INTENTS = (
    "original_question",
    "information_request",
    "further_details",
    "potential_answer",
    "positive_feedback",
    "negative_feedback",
    "greetings_gratitude",
)
REPLIES: tuple[str, ...] = (
    *(fix for fixes in FIXES.values() for fix in fixes),
    *ASK_SYMPTOM.values(),
    *ASK_DEVICE.values(),
    *CLOSING.values(),
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

    def user(self, templates: tuple[str, ...], intent: str) -> Turn:
        text = self.rng.choice(templates).format(
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
    path: str | Path,
    *,
    num_dialogues: int = 600,
    seed: int = 1,
    intent_noise: float = 0.05,
    label_noise: float = 0.05,
) -> Simulation:
    """Write a corpus in icalib's JSONL format, and its `Simulation` beside it (`<name>.truth.json`).

    Args:
        path: the JSONL file to write.
        num_dialogues: dialogues of about 1.7 responses each; 70, 15 and 15 % train, validation and test.
        seed: root seed.
        intent_noise: probability that an utterance's intent is another one.
        label_noise: probability that a reply is a wrong one.

    Raises:
        SettingError: a noise outside [0, 1), or too few dialogues for three splits.
        StorageError: the disk refused a write.
    """
    for name, noise in (("intent_noise", intent_noise), ("label_noise", label_noise)):
        if not 0 <= noise < 1:
            raise SettingError(f"{name} is {noise}. Give a probability of at least 0 and below 1.")
    if num_dialogues < 20:
        raise SettingError(f"num_dialogues is {num_dialogues}. Give 20 or more, so that every split has some.")
    path = Path(path)
    responses, untouched = Counter[str](), Counter[str]()
    with whole_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
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
    write_json(path.with_name(f"{path.name}.truth.json"), simulation.model_dump())
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
    num_train = num_dialogues - num_validation - num_test
    sizes: dict[Split, int] = {"train": num_train, "validation": num_validation, "test": num_test}
    splits: list[Split] = [split for split, size in sizes.items() for _ in range(size)]
    random.Random(child_seed(seed, "splits")).shuffle(splits)
    return splits


def _turns(desk: _Desk) -> Iterator[Turn]:
    rng = desk.rng
    first_fix, alternative = FIXES[desk.device, desk.symptom]
    if rng.random() < 0.5:
        yield desk.user(HELLO, "greetings_gratitude")
        yield Utterance(speaker="agent", text=HELLO_REPLY, intents=("greetings_gratitude",)), HELLO_REPLY
    opening = rng.choice(("both", "no symptom", "no device"))
    if opening == "both":
        yield desk.user(QUESTION_BOTH, "original_question")
    else:
        question = QUESTION_NO_SYMPTOM if opening == "no symptom" else QUESTION_NO_DEVICE
        request = ASK_SYMPTOM[desk.device] if opening == "no symptom" else ASK_DEVICE[desk.symptom]
        yield desk.user(question, "original_question")
        yield desk.agent(request, "information_request")
        yield desk.user(DETAILS, "further_details")
    yield desk.agent(first_fix, "potential_answer")
    if rng.random() < 0.5:
        yield desk.user(NEGATIVE, "negative_feedback")
        yield desk.agent(alternative, "potential_answer")
    if rng.random() < 0.6:
        yield desk.user(POSITIVE, "positive_feedback")
        yield desk.agent(CLOSING[desk.device], "greetings_gratitude")
