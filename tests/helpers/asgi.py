"""Requests to an ASGI application in this process, without a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SCOPE = {"type": "http", "query_string": b""}
"""What is the same in the scopes of all requests."""


@dataclass(frozen=True)
class Answered:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.body)


async def ask_async(
    application: Any,
    path: str,
    body: Any = None,
    *,
    method: str = "POST",
    headers: dict[str, str] | None = None,
    part_bytes: int = 1 << 16,
) -> Answered:
    """Send a request in parts; `body` is JSON unless it is bytes."""
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    parts = [content[start : start + part_bytes] for start in range(0, len(content), part_bytes)] or [b""]
    sent: list[Any] = []

    async def receive() -> Any:
        if not parts:
            await asyncio.Event().wait()  # the client stays
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message: Any) -> None:
        sent.append(message)

    named = {"content-type": "application/json", **(headers or {})}
    encoded = [(name.lower().encode(), value.encode()) for name, value in named.items()]
    await application({**SCOPE, "method": method, "path": path, "headers": encoded}, receive, send)
    start, *rest = sent
    received = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answered(start["status"], received, b"".join(message["body"] for message in rest))


def ask(application: Any, path: str, body: Any = None, **options: Any) -> Answered:
    return asyncio.run(ask_async(application, path, body, **options))


def ask_all(application: Any, requests: Sequence[tuple[str, Any]]) -> list[Answered]:
    """Send requests at the same time."""

    async def all_of_them() -> list[Answered]:
        return await asyncio.gather(*(ask_async(application, path, body) for path, body in requests))

    return asyncio.run(all_of_them())
