"""A language model's endpoint on this machine, which a function plays."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

from icalib.data.schema import Pool
from icalib.labelling.ask import request_body

Respond = Callable[[Mapping[str, Any], int], "Response"]
"""From a request's body and how many there were before to a response."""


@dataclass
class Response:
    text: Any = "1"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None  # instead of a chat completion

    def content(self) -> bytes:
        if self.body is not None:
            return self.body
        return json.dumps({"choices": [{"message": {"role": "assistant", "content": self.text}}]}).encode()


@dataclass
class Endpoint:
    url: str
    requests: list[dict[str, Any]]
    keys: list[str | None]


@contextmanager
def endpoint(respond: Respond) -> Iterator[Endpoint]:
    """The endpoint while it listens, with the requests that it was sent."""
    lock, found = Lock(), Endpoint("", [], [])

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = len(found.requests)
                found.requests.append({"path": self.path, **body})
                found.keys.append(self.headers["Authorization"])
            response = respond(body, number)
            self.send_response(response.status)
            for name, value in {"Content-Length": str(len(response.content())), **response.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(response.content())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def knows(pools: list[Pool], *, is_wrong: Callable[[Pool], bool] = lambda pool: False) -> Respond:
    """A model that knows the right candidates, but names the one after it where `is_wrong`."""

    asked = {request_body(pool, "", 1)["messages"][1]["content"]: pool for pool in pools}

    def respond(body: Mapping[str, Any], number: int) -> Response:
        pool = asked[body["messages"][1]["content"]]
        return Response(str((pool.label + is_wrong(pool)) % len(pool.candidates) + 1))

    return respond
