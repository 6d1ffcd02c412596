"""Request bodies: JSON objects that are small enough, and arrive in time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from typing_extensions import override

from icalib.serving.limits import Limits

_MAX_DISCARDED = 16
"""A body of up to this many times the limit is read to its end: many clients read no response before they sent all."""


class JsonRoute(APIRoute):
    """A route whose requests have a JSON object as their body, within `app.state.limits`; as many as `app.state.free`.

    FastAPI's own `max_body_size` answers in plain text, and closes connections of clients that are still sending.
    """

    @override
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            if request.method != "POST":
                return await handle(request)
            free: asyncio.Semaphore = request.app.state.free
            if free.locked():  # refused before its body takes memory
                most = request.app.state.limits.max_pending
                raise HTTPException(429, f"{most} requests are waiting. Try again later.", {"retry-after": "1"})
            async with free:
                return await handle(_JsonRequest(request.scope, request.receive))

        return handle_json


class _JsonRequest(Request):
    _content: bytes | None = None

    @override
    async def body(self) -> bytes:
        if self._content is None:
            self._check_content_type()
            self._content = await self._read(self.app.state.limits)
        return self._content

    @override
    async def json(self) -> Any:
        try:
            value = json.loads(await self.body())
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else f"{error}"
            raise HTTPException(400, f"the body is not valid JSON ({reason:.200}). Expected a JSON object.") from None
        if not isinstance(value, dict):
            raise HTTPException(422, f"the body is {value!r:.40}. Expected a JSON object.")
        self._check_counts(value)
        return value

    def _check_counts(self, value: dict[str, Any]) -> None:
        """Refuse long lists before their items are validated, which takes 8 µs and 400 bytes each."""
        limits: Limits = self.app.state.limits
        for name in ("texts", "documents", "candidates"):
            if isinstance(found := value.get(name), list) and len(found) > limits.max_candidates:
                raise HTTPException(
                    413,  # as text-embeddings-inference has it
                    f"found {len(found)} candidates. Expected at most {limits.max_candidates}: split the request, or "
                    "raise --max-candidates.",
                )
        if isinstance(found := value.get("context"), list) and len(found) > limits.max_turns:
            raise HTTPException(422, f"found {len(found)} utterances. Expected at most {limits.max_turns}.")

    def _check_content_type(self) -> None:
        """Refuse what pages of other sites can make a browser send without asking the server first."""
        found = self.headers.get("content-type") or "none"
        if found.partition(";")[0].strip().lower() != "application/json":
            raise HTTPException(415, f"the content type is {found:.50}. Expected `Content-Type: application/json`.")

    async def _read(self, limits: Limits) -> bytes:
        content, size = bytearray(), 0
        try:
            async with asyncio.timeout(limits.body_timeout_s):
                async for part in self.stream():
                    size += len(part)
                    if size <= limits.max_body_bytes:
                        content += part
                    elif size > _MAX_DISCARDED * limits.max_body_bytes:
                        break
        except TimeoutError:
            raise HTTPException(
                408, f"the body was not complete after {limits.body_timeout_s:g} s. Send it faster."
            ) from None
        if size > limits.max_body_bytes:
            raise HTTPException(
                413,
                f"the body has more than {limits.max_body_bytes} bytes. Send shorter texts, or fewer candidates per "
                "request.",
            )
        if not content:
            raise HTTPException(400, "the body is not valid JSON (it is empty). Expected a JSON object.")
        return bytes(content)
