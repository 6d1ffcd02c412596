"""The APIs that a server speaks: text-embeddings-inference's, Cohere's, and icalib's own.

Each request is a context with candidates, and knows how its API writes the response.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field
from typing_extensions import override

from icalib.core.errors import SettingError
from icalib.data.questions import TEXT_OR_OBJECT, Id, Question, Turns, Verbatim
from icalib.data.schema import Text, Utterance
from icalib.metrics.pairs import PoolScores
from icalib.pipeline.finished import FinishedRun
from icalib.pipeline.guarantees import CONFIDENCE, AnswerOptions

_TEI_ERROR_TYPES = {401: "unauthorized", 429: "overloaded", 500: "backend", 503: "unhealthy"}


@dataclass(frozen=True)
class Scored:
    """The scores of one request: as a pool, and the table (PREDICTION_SCHEMA) that they come from."""

    run: FinishedRun
    scores: PoolScores
    table: pa.Table

    def ranking(self) -> list[int]:
        """Return the candidates' indices, best first; tied candidates keep their order."""
        return np.argsort(-self.scores.logit, kind="stable").tolist()


class AbstractRequest(BaseModel, ABC):
    """A request of one API; unknown fields are ignored, since clients of later versions send more of them."""

    model_config = ConfigDict(strict=True, extra="ignore")

    @abstractmethod
    def question(self) -> tuple[Sequence[Utterance], Sequence[str]]:
        """Return the context, oldest utterance first, and the candidates."""

    def check(self, run: FinishedRun) -> None:
        """Raise a SettingError or DataError, before anything is scored, if what is asked for can't be computed."""
        if run.has_softmax and len(self.question()[1]) < 2:
            raise SettingError(
                f"`{run.config.method}` compares the candidates of a question, so that one alone has no "
                "probability. Send two or more."
            )

    @abstractmethod
    def response(self, scored: Scored) -> Any:
        """Return the response's JSON."""


class TextsRequest(AbstractRequest):
    """`POST /rerank` of text-embeddings-inference; scores are calibrated probabilities, or logits if raw."""

    query: Text
    texts: Annotated[list[Verbatim], FailFast()] = Field(min_length=1)
    raw_scores: bool = False
    return_text: bool = False

    @override
    def question(self) -> tuple[Sequence[Utterance], Sequence[str]]:
        return [_user(self.query)], self.texts

    @override
    def response(self, scored: Scored) -> Any:
        values = scored.scores.logit if self.raw_scores else scored.scores.prob
        return [
            {"index": index, **({"text": self.texts[index]} if self.return_text else {}), "score": float(values[index])}
            for index in scored.ranking()
        ]


class Document(BaseModel):
    """A candidate as an object; its other fields are ignored."""

    text: Text


def _text_of(document: Any) -> str:
    text = document.get("text") if isinstance(document, dict) else document
    if not isinstance(text, str):
        raise ValueError(TEXT_OR_OBJECT)
    return text


_DocumentText = Annotated[Verbatim, BeforeValidator(_text_of, json_schema_input_type=str | Document)]


class DocumentsRequest(AbstractRequest):
    """`POST /v2/rerank` and `/v1/rerank` of Cohere; relevance is the calibrated probability of being right."""

    query: Text
    documents: Annotated[list[_DocumentText], FailFast()] = Field(min_length=1)
    model: Any = None
    top_n: int | None = Field(default=None, ge=1)
    return_documents: bool = False

    @override
    def question(self) -> tuple[Sequence[Utterance], Sequence[str]]:
        return [_user(self.query)], self.documents

    @override
    def response(self, scored: Scored) -> Any:
        results = [
            {
                "index": index,
                **({"document": {"text": self.documents[index]}} if self.return_documents else {}),
                "relevance_score": float(scored.scores.prob[index]),
            }
            for index in scored.ranking()[: self.top_n]
        ]
        return {"id": str(uuid.uuid4()), "results": results}


class PredictRequest(AbstractRequest):
    """`POST /predict`: one object with the fields of `icalib predict`, and the uncertainty of each candidate.

    An unknown field is refused: a mistyped `max_error` would be an answer without its promise.
    """

    model_config = ConfigDict(extra="forbid")

    context: Turns
    candidates: Annotated[list[Verbatim], FailFast()] = Field(min_length=2)
    id: Id | None = None
    max_error: float | None = None
    confidence: float = CONFIDENCE
    sets: float | None = None

    @override
    def question(self) -> tuple[Sequence[Utterance], Sequence[str]]:
        return self.context, self.candidates

    @property
    def _options(self) -> AnswerOptions:
        return AnswerOptions(max_error=self.max_error, confidence=self.confidence, sets=self.sets)

    @override
    def check(self, run: FinishedRun) -> None:
        run.guarantees.check(self._options)

    @override
    def response(self, scored: Scored) -> Any:
        question = Question.model_construct(id=self.id or "1", context=self.context, candidates=tuple(self.candidates))
        predicted = scored.run.guarantees.answers([question], scored.scores, self._options)
        (answer,) = predicted.answers
        # Whatever `icalib predict` says about the whole pool is a field of its record, and so part of the response.
        return {**answer.record(), "uncertainty": _uncertainty(scored.table), "notes": predicted.notes}


def error_body(path: str, status: int, message: str) -> dict[str, str]:
    """Return an error's JSON in the shape of the API at a path."""
    if path == "/rerank":
        return {"error": message, "error_type": _TEI_ERROR_TYPES.get(status, "validation")}
    if path in ("/v1/rerank", "/v2/rerank"):
        return {"id": str(uuid.uuid4()), "message": message}
    return {"error": message}


def _uncertainty(table: pa.Table) -> dict[str, list[float]]:
    return {
        "prob_std": np.sqrt(table["prob_var"].to_numpy()).tolist(),
        "logit_std": np.sqrt(table["logit_var"].to_numpy()).tolist(),
        "mutual_information": table["mutual_information"].to_pylist(),
    }


def _user(text: str) -> Utterance:
    return Utterance(speaker="user", text=text)
