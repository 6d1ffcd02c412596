"""Loader of an exported graph for MLflow. It is copied into the model's folder, so it imports nothing of icalib.

The ids of a pair are those of icalib's training: each utterance is tokenised by itself, without special tokens.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from onnxruntime import InferenceSession
from tokenizers import Tokenizer

_BATCH = 32
_OUTPUTS = {"logit": "logits", "probability": "probabilities", "variance": "variances"}


class PairRanker:
    """Logits and calibrated probabilities of (context, candidate) pairs.

    Args:
        folder: the exported graph, its tokenizer and `icalib_export.json`.
    """

    def __init__(self, folder: Path) -> None:
        self._inputs = json.loads((folder / "icalib_export.json").read_text(encoding="utf-8"))["inputs"]
        self._session = InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.encode_special_tokens = True  # "[SEP]" in a user's text is text
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return `logit`, `probability` and `variance` of each row, in the order of the rows.

        Args:
            model_input: `context`, the last utterances of a dialogue as texts, oldest first, and `candidate`, a text.
            params: not used; MLflow passes it.

        Raises:
            ValueError: an utterance or candidate is empty, or isn't a text.
        """
        contexts = [self._context(context, row) for row, context in enumerate(model_input["context"])]
        candidates = [
            self._ids(candidate, f"row {row}: candidate")[: self._inputs["max_candidate_tokens"]]
            for row, candidate in enumerate(model_input["candidate"])
        ]
        found = {name: np.zeros(len(contexts)) for name in _OUTPUTS}
        lengths = [len(context) + len(candidate) for context, candidate in zip(contexts, candidates, strict=True)]
        order = np.argsort(lengths, kind="stable")
        for start in range(0, len(order), _BATCH):
            rows = order[start : start + _BATCH]
            batch = self._batch([(contexts[row], candidates[row]) for row in rows])
            outputs = self._session.run(list(_OUTPUTS.values()), batch)
            for name, values in zip(_OUTPUTS, outputs, strict=True):
                found[name][rows] = np.asarray(values)
        return pd.DataFrame(found, index=model_input.index)

    def _context(self, context: Any, row: int) -> list[int]:
        if isinstance(context, str) or not hasattr(context, "__len__") or not len(context):
            raise ValueError(f"row {row}: context is {context!r:.60}; expected a list of one utterance or more")
        ids: list[int] = []
        for number, utterance in enumerate(list(context)[-self._inputs["context_turns"] :]):
            if number and self._inputs["turn_separators"]:
                ids.append(self._inputs["separator"])
            ids += self._ids(utterance, f"row {row}: an utterance of context")
        return ids[-self._inputs["max_context_tokens"] :]

    def _ids(self, text: Any, what: str) -> list[int]:
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"{what} is {text!r:.60}; expected a text that isn't empty")
        return self._tokenizer.encode(text.strip(), add_special_tokens=False).ids

    def _batch(self, pairs: list[tuple[list[int], list[int]]]) -> dict[str, Any]:
        between = [self._inputs["separator"]] * self._inputs["num_separators"]
        starts = [1 + len(context) + len(between) for context, _ in pairs]
        rows = [
            [self._inputs["start"], *context, *between, *candidate, self._inputs["separator"]]
            for context, candidate in pairs
        ]
        shape = (len(rows), max(map(len, rows)))
        ids, mask, segments = (np.full(shape, value, np.int64) for value in (self._inputs["padding"], 0, 0))
        for row, (tokens, start) in enumerate(zip(rows, starts, strict=True)):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
            segments[row, start : len(tokens)] = 1
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}


def _load_pyfunc(path: str) -> PairRanker:  # pyright: ignore[reportUnusedFunction] # MLflow calls it
    return PairRanker(Path(path))
