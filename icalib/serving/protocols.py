"""The APIs that a server speaks, told apart by path: text-embeddings-inference, Cohere, and icalib's own.

Each reads a request's JSON into a context with candidates, and writes scores in its own shape.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import override

from icalib.core.errors import DataError, SettingError
from icalib.core.invalid import first_problem
from icalib.data.questions import Question
from icalib.data.schema import Text, Utterance
from icalib.metrics.pairs import PoolScores
from icalib.pipeline.answering import AnswerOptions
from icalib.pipeline.guarantees import CONFIDENCE
from icalib.serving.http import RequestError
from icalib.serving.limits import Limits
from icalib.serving.served_run import ServedRun

R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True)
class Asked:
    """A request that has been checked: what is scored, and the request itself."""

    context: Sequence[Utterance]
    candidates: Sequence[str]
    request: Any


@dataclass(frozen=True)
class Scored:
    """The scores of one request: as a pool, and the table (PREDICTION_SCHEMA) that they come from."""

    run: ServedRun
    scores: PoolScores
    table: pa.Table

    def ranking(self) -> list[int]:
        """Return the candidates' indices, best first; tied candidates keep their order."""
        return np.argsort(-self.scores.logit, kind="stable").tolist()


class AbstractProtocol(ABC):
    """How one API writes requests, responses and errors."""

    @abstractmethod
    def read(self, value: Any, limits: Limits) -> Asked:
        """Read a request's JSON.

        Raises:
            RequestError: a field is missing or wrong, or a limit is exceeded.
        """

    @abstractmethod
    def answer(self, asked: Asked, scored: Scored) -> Any:
        """Return the response's JSON.

        Raises:
            RequestError: what was asked for can't be computed.
        """

    @abstractmethod
    def error(self, status: int, message: str) -> dict[str, Any]:
        """Return the JSON of an error."""


class _Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _TextsRequest(_Request):
    query: Text
    texts: list[Text] = Field(min_length=1)
    raw_scores: bool = False
    return_text: bool = False


class TextEmbeddingsInference(AbstractProtocol):
    """`POST /rerank` of text-embeddings-inference; scores are calibrated probabilities, or logits if raw."""

    _TYPES: ClassVar[Mapping[int, str]] = {
        401: "unauthorized",
        429: "overloaded",
        500: "backend",
        503: "unhealthy",
    }

    @override
    def read(self, value: Any, limits: Limits) -> Asked:
        request = _validated(_TextsRequest, value)
        return _checked(Asked([_user(request.query)], request.texts, request), limits)

    @override
    def answer(self, asked: Asked, scored: Scored) -> Any:
        request: _TextsRequest = asked.request
        values = scored.scores.logit if request.raw_scores else scored.scores.prob
        return [
            {
                "index": index,
                **({"text": asked.candidates[index]} if request.return_text else {}),
                "score": float(values[index]),
            }
            for index in scored.ranking()
        ]

    @override
    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": message, "error_type": self._TYPES.get(status, "validation")}


class _Document(_Request):
    text: Text


class _DocumentsRequest(_Request):
    query: Text
    documents: list[Text | _Document] = Field(min_length=1)
    model: str = ""
    top_n: int | None = Field(default=None, ge=1)
    return_documents: bool = False


class Cohere(AbstractProtocol):
    """`POST /v2/rerank` and `/v1/rerank` of Cohere; relevance is the calibrated probability of being right."""

    def __init__(self, version: str) -> None:
        self._version = version

    @override
    def read(self, value: Any, limits: Limits) -> Asked:
        request = _validated(_DocumentsRequest, value)
        texts = [document if isinstance(document, str) else document.text for document in request.documents]
        return _checked(Asked([_user(request.query)], texts, request), limits)

    @override
    def answer(self, asked: Asked, scored: Scored) -> Any:
        request: _DocumentsRequest = asked.request
        results = [
            {
                "index": index,
                **({"document": {"text": asked.candidates[index]}} if request.return_documents else {}),
                "relevance_score": float(scored.scores.prob[index]),
            }
            for index in scored.ranking()[: request.top_n]
        ]
        return {"id": str(uuid.uuid4()), "results": results, "meta": {"api_version": {"version": self._version}}}

    @override
    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"id": str(uuid.uuid4()), "message": message}


class _PredictRequest(_Request):
    context: list[Text | Utterance] = Field(min_length=1)
    candidates: list[Text] = Field(min_length=2)
    id: Text = "1"
    max_error: float | None = None
    confidence: float = CONFIDENCE
    sets: float | None = None


class Predict(AbstractProtocol):
    """`POST /predict`: one object with the fields of `icalib predict`, and the uncertainty of each candidate."""

    @override
    def read(self, value: Any, limits: Limits) -> Asked:
        request = _validated(_PredictRequest, value)
        context = [_user(turn) if isinstance(turn, str) else turn for turn in request.context]
        return _checked(Asked(context, request.candidates, request), limits)

    @override
    def answer(self, asked: Asked, scored: Scored) -> Any:
        request: _PredictRequest = asked.request
        question = Question.model_construct(
            id=request.id, context=tuple(asked.context), candidates=tuple(asked.candidates)
        )
        options = AnswerOptions(max_error=request.max_error, confidence=request.confidence, sets=request.sets)
        try:
            predicted = scored.run.answering.answers([question], scored.scores, options)
        except (SettingError, DataError) as error:
            raise RequestError(422, str(error)) from error
        (answer,) = predicted.answers
        # Whatever `icalib predict` says about the whole pool is a field of its record, and so part of the response.
        return {**answer.record(), "uncertainty": _uncertainty(scored.table), "notes": predicted.notes}

    @override
    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": message}


PROTOCOLS: Mapping[str, AbstractProtocol] = {
    "/rerank": TextEmbeddingsInference(),
    "/v2/rerank": Cohere("2"),
    "/v1/rerank": Cohere("1"),
    "/predict": Predict(),
}
"""The protocol of each path that scores."""


def _uncertainty(table: pa.Table) -> dict[str, list[float]]:
    """Return what is uncertain about each candidate: standard deviations, and mutual information in nats."""
    return {
        "prob_std": np.sqrt(table["prob_var"].to_numpy()).tolist(),
        "logit_std": np.sqrt(table["logit_var"].to_numpy()).tolist(),
        "mutual_information": table["mutual_information"].to_pylist(),
    }


def _user(text: str) -> Utterance:
    return Utterance(speaker="user", text=text)


def _validated(model: type[R], value: Any) -> R:
    if not isinstance(value, dict):
        raise RequestError(422, f"the body is {value!r:.40}. Expected a JSON object.")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problem = first_problem(error)
        raise RequestError(422, f"`{'.'.join(problem.path)}`: {problem.found}. Expected: {problem.expected}.") from None


def _checked(asked: Asked, limits: Limits) -> Asked:
    """Check the limits.

    Raises:
        RequestError: one of them is exceeded.
    """
    if len(asked.candidates) > limits.max_candidates:
        raise RequestError(
            422,
            f"found {len(asked.candidates)} candidates. Expected at most {limits.max_candidates}: split the request, "
            "or raise --max-candidates.",
        )
    if len(asked.context) > limits.max_turns:
        raise RequestError(422, f"found {len(asked.context)} utterances. Expected at most {limits.max_turns}.")
    for text in (*(utterance.text for utterance in asked.context), *asked.candidates):
        if len(text) > limits.max_text_chars:
            raise RequestError(
                422,
                f"found a text of {len(text)} characters. Expected at most {limits.max_text_chars}: shorten it, or "
                "raise --max-text.",
            )
    return asked
