"""Scores from a `/rerank` service: text-embeddings-inference's protocol, or Cohere's, which vLLM speaks too.

text-embeddings-inference    {query, texts, raw_scores, truncate}  → [{index, score}]
Cohere v2                    {model, query, documents, top_n}      → {results: [{index, relevance_score}]}
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Literal
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import numpy as np

from icalib.core.errors import ServiceError, SettingError
from icalib.core.text import short_repr, shortened
from icalib.data.schema import Pool
from icalib.metrics.pairs import FloatArray

Protocol = Literal["auto", "tei", "cohere"]
PROTOCOLS: tuple[Protocol, ...] = ("auto", "tei", "cohere")

MAX_TEXTS = 32
"""Candidates of a request: the default limit of text-embeddings-inference. A pair's score doesn't depend on others."""
TIMEOUT_S = 60.0
_TRIES = 4
_MAX_ANSWER = 1 << 24
_PASSING = (408, 425, 429, 500, 502, 503, 504)
_REFUSED = (400, 404, 405, 415, 422)


class _NoRedirect(HTTPRedirectHandler):
    """Redirects are refused: a token goes to the service that was named, and no other."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


@dataclass
class Endpoint:
    """A `/rerank` service.

    Args:
        url: the whole URL, e.g. http://localhost:8080/rerank.
        protocol: auto tries text-embeddings-inference's first, and Cohere's where that is refused.
        model: name of the model, which Cohere's protocol asks for.
        token: sent as a bearer token; empty for none.
    """

    url: str
    protocol: Protocol = "auto"
    model: str = ""
    token: str = ""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingError(
                f"--endpoint {shortened(self.url)} is not a URL of a service; expected e.g. "
                "http://localhost:8080/rerank."
            )
        self._opener = build_opener(_NoRedirect)

    def scores(self, query: str, texts: Sequence[str]) -> FloatArray:
        """Return the score of each text, [N].

        Raises:
            ServiceError: the service can't be reached, refuses the request, or answers with something else.
        """
        parts = [texts[start : start + MAX_TEXTS] for start in range(0, len(texts), MAX_TEXTS)]
        return np.concatenate([self._scores(query, part) for part in parts])

    def _scores(self, query: str, texts: Sequence[str]) -> FloatArray:
        if self.protocol == "auto":
            self.protocol = self._detected(query, texts[:1])
        return self._parsed(self._post(self._body(query, texts)), len(texts))

    def _detected(self, query: str, texts: Sequence[str]) -> Literal["tei", "cohere"]:
        refusals: list[str] = []
        for protocol in ("tei", "cohere"):
            self.protocol = protocol
            try:
                self._parsed(self._post(self._body(query, texts)), len(texts))
            except _RefusedError as error:
                refusals.append(f"{protocol}: {error}")
            else:
                return protocol
        self.protocol = "auto"
        raise ServiceError(
            f"{self.url} refused both protocols ({'; '.join(refusals)}). Expected a /rerank service of "
            "text-embeddings-inference, vLLM or Cohere; check the URL, and the name of the model with --model."
        )

    def _body(self, query: str, texts: Sequence[str]) -> dict[str, Any]:
        if self.protocol == "tei":
            return {"query": query, "texts": list(texts), "raw_scores": True, "truncate": True}
        body = {"query": query, "documents": list(texts), "top_n": len(texts)}
        return {"model": self.model, **body} if self.model else body

    def _post(self, body: Mapping[str, Any]) -> Any:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "icalib"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = Request(self.url, json.dumps(body).encode(), headers, method="POST")
        problem = ""
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(2.0 ** (attempt - 1))
            try:
                with self._opener.open(request, timeout=TIMEOUT_S) as response:
                    return json.loads(response.read(_MAX_ANSWER))
            except HTTPError as error:
                with error:
                    text = error.read(1000).decode("utf-8", "replace")
                problem = f"status {error.code}: {shortened(' '.join(text.split()), 200)}"
                if error.code in _REFUSED:
                    raise _RefusedError(
                        f"{self.url} refused a request ({problem}). Check the URL and the model."
                    ) from error
                if error.code not in _PASSING:
                    break
            except (ValueError, RecursionError) as error:
                raise ServiceError(
                    f"{self.url} answered with something that is not JSON. Expected a /rerank service; check the URL."
                ) from error
            except (URLError, TimeoutError, ConnectionError, HTTPException) as error:
                problem = str(getattr(error, "reason", error)) or type(error).__name__
        raise ServiceError(
            f"{self.url} can't be used ({problem}). Check that the service runs, the URL, and its token "
            "(--token-variable)."
        )

    def _parsed(self, answer: Any, size: int) -> FloatArray:
        entries, name = (answer, "score") if self.protocol == "tei" else (_results(answer), "relevance_score")
        score = np.full(size, np.nan)
        for entry in entries if isinstance(entries, list) else ():
            index = entry.get("index") if isinstance(entry, dict) else None
            value = entry.get(name) if isinstance(entry, dict) else None
            if isinstance(index, int) and 0 <= index < size and isinstance(value, int | float):
                with suppress(OverflowError):  # an integer that no float can hold
                    score[index] = value
        if not np.isfinite(score).all():
            expected = "[{index, score}]" if self.protocol == "tei" else "{results: [{index, relevance_score}]}"
            raise _RefusedError(
                f"{self.url} answered with {short_repr(answer)}; expected a finite score for each of {size} texts, as "
                f"{expected}. Check the URL and the protocol."
            )
        return score


class _RefusedError(ServiceError):
    """The service doesn't speak the protocol, or refuses what it was asked."""


def _results(answer: Any) -> Any:
    return answer.get("results") if isinstance(answer, dict) else None


def query_text(pool: Pool) -> str:
    """Return a context as the query of a reranker: its utterances, one a line."""
    return "\n".join(utterance.text for utterance in pool.context)
