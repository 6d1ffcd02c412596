"""Reading requests and writing responses by the ASGI protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_MAX_DISCARDED = 16
"""A body of up to this many times the limit is read to its end: many clients read no response before they sent all."""


class RequestError(Exception):
    """A request that is refused.

    Attributes:
        status: HTTP status.
        message: what was found and what was expected.
        headers: further headers of the response.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}


class DisconnectedError(Exception):
    """The client has gone before its request was complete."""


@dataclass(frozen=True)
class Response:
    """A response with a body of bytes."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
        """Return a value as JSON."""
        return cls(status, json.dumps(value, ensure_ascii=False, allow_nan=False).encode(), headers=headers or {})

    async def send(self, send: Send) -> None:
        """Send the response."""
        named = {"content-type": self.content_type, "content-length": str(len(self.body)), **self.headers}
        headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in named.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def header(scope: Scope, name: str) -> str:
    """Return a header of a request; empty if it is missing."""
    wanted = name.lower().encode("latin-1")
    return next((value.decode("latin-1") for key, value in scope["headers"] if key.lower() == wanted), "")


async def read_json(receive: Receive, max_bytes: int, timeout_s: float) -> Any:
    """Read a request's body as JSON.

    Raises:
        RequestError: the body is too large or too slow (413, 408), or is not JSON (400).
        DisconnectedError: the client has gone.
    """
    try:
        async with asyncio.timeout(timeout_s):
            body = await _read_body(receive, max_bytes)
    except TimeoutError:
        raise RequestError(408, f"the body was not complete after {timeout_s:g} s. Send it faster.") from None
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else f"{error}"
        raise RequestError(400, f"the body is not valid JSON ({reason:.200}). Expected a JSON object.") from None


async def _read_body(receive: Receive, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    more = True
    while more and size <= _MAX_DISCARDED * max_bytes:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        part = message.get("body", b"")
        size += len(part)
        if size <= max_bytes:
            parts.append(part)
        more = message.get("more_body", False)
    if size > max_bytes:
        raise RequestError(
            413, f"the body has more than {max_bytes} bytes. Send shorter texts, or fewer candidates per request."
        )
    return b"".join(parts)
