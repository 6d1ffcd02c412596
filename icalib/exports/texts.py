"""A context and its candidates as pairs of texts, which stock rerankers read.

icalib tokenises each utterance by itself and joins the ids. A stock tokenizer gets the context as one text, so the
utterances are joined by a separator that leaves the tokens of each one as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import Field
from tokenizers.processors import TemplateProcessing

from icalib.core.component import Settings, validated_file
from icalib.core.errors import SettingError
from icalib.core.files import file_digest, is_file, read_json
from icalib.data.encoding import Budget, Encoded, Layout
from icalib.data.questions import Candidates, validated
from icalib.data.schema import Pool
from icalib.encoders.backbone import Tokenizer, backbone_path, loading, pretrained, quiet_transformers

EXPORT_FILE = "icalib_export.json"
"""File in an exported folder that says how its texts are written, and what was exported."""

PROBES = (
    ("My printer hums", "restart it."),
    ("(Which one?)", "v2.1-beta", "Ähnlich wie gestern!"),
    ("ok", "naïve résumé", "打印机 坏了", "100 %"),
    ("it was th", "e printer"),
)  # letters, punctuation, digits, accents and another script at both ends of utterances, and a word across two


class PairTexts(Settings):
    """How contexts and candidates are written as texts for an exported ranker."""

    utterance_separator: str  # what joins the utterances of a context
    context_turns: int = Field(ge=1)  # maximum number of utterances; earlier ones are left out
    limits: Budget
    """Maximum number of tokens of a context, whose end is kept, and of a candidate, whose start is kept."""

    def pairs(
        self, tokenizer: Any, context: Sequence[str | Mapping[str, str]], candidates: Sequence[str]
    ) -> list[tuple[str, str]]:
        """Return (context, candidate) as texts for each candidate, cut to the token limits at words of the context.

        `context` has the last utterances, oldest first: texts, or objects with `text`; a DataError if one is empty.
        """
        given = validated(Candidates, {"context": context, "candidates": candidates})
        turns = [_plain(tokenizer, turn.text) for turn in given.context[-self.context_turns :]]
        context_text = _end(tokenizer, self.utterance_separator.join(turns), self.limits.max_context_tokens)
        texts = [_plain(tokenizer, text) for text in given.candidates]
        return [(context_text, _start(tokenizer, text, self.limits.max_candidate_tokens)) for text in texts]

    def of_pool(self, tokenizer: Any, pool: Pool) -> list[tuple[str, str]]:
        """Return the `pairs` of a pool."""
        return self.pairs(tokenizer, [turn.text for turn in pool.context], pool.candidates)

    def encoded(self, tokenizer: Any, pool: Pool) -> list[Encoded]:
        """Return the ids of each pair of a pool by a stock tokenizer, and the index at which the candidate starts."""
        encoded = tokenizer(*map(list, zip(*self.of_pool(tokenizer, pool), strict=True)), truncation=True)
        return [
            (np.array(ids, np.int32), len(ids) - 1 - encoded.sequence_ids(row).count(1))
            for row, ids in enumerate(encoded["input_ids"])
        ]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read how an exported folder's texts are written; a SettingError if none has the tokens of training, or the
        folder isn't one that was exported.
        """
        path = folder / EXPORT_FILE
        if not is_file(path):
            raise SettingError(
                f"{folder} is not an exported ranker: it has no {EXPORT_FILE}. Name a folder that `icalib export` "
                "wrote."
            )
        texts = read_json(path)["texts"]
        if texts is None:
            raise SettingError(
                f"{folder} reads token ids: its tokenizer gives no text of a context the tokens of training. Its "
                "README.md says how ids are made."
            )
        return validated_file(path, cls, texts)


def read_tokenizer(folder: Path) -> Any:
    """Return the tokenizer of an exported folder, which reads separators between utterances as one token each.

    It is kept until another one is exported to the same path.
    """
    return _tokenizer_of(folder.resolve(), file_digest(folder / EXPORT_FILE))


@lru_cache(maxsize=4)
def _tokenizer_of(folder: Path, digest: str) -> Any:
    with loading(partial(_unreadable, folder)):
        return pretrained("AutoTokenizer", folder, local_files_only=True)


def _unreadable(folder: Path, reason: str) -> SettingError:
    return SettingError(f"the tokenizer of {folder} can't be read: {reason} Export the run again.")


def _plain(tokenizer: Any, text: str) -> str:
    """Return a text whose special tokens are broken up, where the tokenizer would read them as such: it has to, where
    they separate utterances. `[ SEP ]` has the tokens of `[SEP]` as plain text in BERT; others differ a little.
    """
    if not tokenizer.split_special_tokens:
        for special in tokenizer.all_special_tokens:
            text = text.replace(special, f"{special[0]} {special[1:-1]} {special[-1]}")
    return text


def texts_of(layout: Layout, tokenize: Tokenizer, tokenizer: Any, context_turns: int) -> PairTexts:
    """Return how pairs are written so that a stock tokenizer gives icalib's tokens, or raise a SettingError."""
    separator = utterance_separator(tokenize, tokenizer, separated=layout.turn_separators)
    if separator is not None:
        return PairTexts(utterance_separator=separator, context_turns=context_turns, limits=layout.limits)
    raise SettingError(
        "the backbone's tokenizer gives the utterances of a context other tokens when they are one text, as stock "
        "rerankers get them (byte-level BPE marks the space before a word). Add --distil, whose student separates "
        "utterances. A cross-encoder alone can also be trained with encoder.turn_separators=true, or exported with "
        "--format onnx, which reads token ids."
    )


def utterance_separator(tokenize: Tokenizer, tokenizer: Any, *, separated: bool) -> str | None:
    """Return what joins utterances to one text of which a stock tokenizer gives icalib's ids; None if nothing does.

    `separated` says whether icalib's have a separator between utterances.
    """
    special = tokenizer.convert_ids_to_tokens(tokenize.separator)
    wanted = (f" {special} ", special) if separated else (" ", "")
    between = [tokenize.separator] * separated
    for separator in wanted:
        if all(_same_ids(tokenize, tokenizer, probe, separator, between) for probe in PROBES):
            return separator
    return None


def stock_tokenizer(name: str, layout: Layout, *, has_segments: bool, of_pairs: bool = True) -> Any:
    """Return a backbone's tokenizer with the settings that an exported folder stores.

    It cuts long pairs at the start of the context, puts the special tokens of training around texts, and reads those in
    users' texts as text unless they separate utterances. `has_segments` says whether the encoder reads
    `token_type_ids`, which not every tokenizer knows of its model.
    """
    from transformers import AutoTokenizer

    limits = layout.limits
    of_pair = limits.max_context_tokens + layout.num_separators + limits.max_candidate_tokens
    longest = of_pair if of_pairs else max(limits.max_context_tokens, limits.max_candidate_tokens)
    with quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(
            backbone_path(name),
            trust_remote_code=False,
            use_fast=True,
            truncation_side="left",
            split_special_tokens=not layout.turn_separators,
            model_input_names=["input_ids", *["token_type_ids"] * has_segments, "attention_mask"],
            model_max_length=longest + 2,
        )
    if tokenizer.num_special_tokens_to_add(pair=True) != layout.num_separators + 2:  # as in Llama's
        tokenizer.backend_tokenizer.post_processor = _template(tokenizer, layout)
    return tokenizer


def _template(tokenizer: Any, layout: Layout) -> TemplateProcessing:
    """Return what puts a layout's special tokens around a text or a pair of texts."""
    special = {token: tokenizer.convert_ids_to_tokens(token) for token in (layout.cls, layout.separator)}
    context = [special[layout.cls], "$A", special[layout.separator]]
    between = [special[layout.separator]] * (layout.num_separators - 1)
    candidate = ["$B:1", f"{special[layout.separator]}:1"]
    ids = [(name, token) for token, name in special.items()]
    return TemplateProcessing(context, [*context, *between, *candidate], ids)


def _same_ids(
    tokenize: Tokenizer, tokenizer: Any, utterances: Sequence[str], separator: str, between: Sequence[int]
) -> bool:
    ids: list[int] = []
    for number, utterance_ids in enumerate(tokenize(list(utterances))):
        ids += [*(between if number else ()), *utterance_ids]
    return tokenizer(separator.join(utterances), add_special_tokens=False, verbose=False)["input_ids"] == ids


def _end(tokenizer: Any, text: str, max_tokens: int) -> str:
    """Return the end of a text, from the first word on of which all tokens are among the last `max_tokens`."""
    found = _offsets(tokenizer, text)
    words, offsets = found.word_ids(), found["offset_mapping"]
    first = len(offsets) - max_tokens
    if first <= 0:
        return text
    while first < len(words) - 1 and words[first] is not None and words[first] == words[first - 1]:
        first += 1
    return text[offsets[first][0] :]


def _start(tokenizer: Any, text: str, max_tokens: int) -> str:
    """Return the start of a text, its first `max_tokens` tokens."""
    offsets = _offsets(tokenizer, text)["offset_mapping"]
    return text if len(offsets) <= max_tokens else text[: offsets[max_tokens - 1][1]]


def _offsets(tokenizer: Any, text: str) -> Any:
    return tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
