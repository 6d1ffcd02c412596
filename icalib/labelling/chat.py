"""An OpenAI-compatible chat endpoint: bounded answers, requests at a pace, and retries when it is busy."""

from __future__ import annotations

import http.client
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import count
from threading import Event, Lock
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from typing_extensions import override

from icalib.core.errors import EndpointError, RefusedRequestError, SettingError
from icalib.core.hosts import is_loopback
from icalib.core.text import shortened

_BUSY = (408, 429, 500, 502, 503, 504, 529)
_UNFIT = (400, 413, 422)  # of one request's texts, if others are answered
_TRIES = 7
_BACKOFF_S = 1.0  # doubled with each try
_MAX_WAIT_S = 600.0
_SAID_AGAIN_S = 0.5  # by which a wait must be longer than the one that was said
_TIMEOUT_S = 120.0
_MAX_BYTES = 1 << 20


class Chat:
    """An endpoint, which any number of threads may ask.

    A SettingError says that the address or the key is not valid, or that texts would travel unencrypted.

    Args:
        url: up to the version, e.g. https://host/v1.
        key_variable: environment variable that has the API key; without it no key is sent.
        requests_per_minute: maximum number of requests that begin in a minute.
        allow_http: whether plain http may leave this machine.
        note: receives why requests wait.
    """

    def __init__(
        self, url: str, key_variable: str, requests_per_minute: float, allow_http: bool, note: Callable[[str], None]
    ) -> None:
        scheme, host = _scheme_and_host(url)
        is_local = is_loopback(host)
        if scheme == "http" and not is_local and not allow_http:
            raise SettingError(
                f"--url {url} would send dialogues and the key unencrypted. Use https, or --allow-http in a network "
                "that you trust."
            )
        if not requests_per_minute > 0:
            raise SettingError(f"--requests-per-minute is {requests_per_minute}: expected a number above 0.")
        self._url, self._note = url.rstrip("/") + "/chat/completions", note
        self._key = os.environ.get(key_variable, "").strip()
        if not re.fullmatch("[!-~]*", self._key):  # http.client would show it in its error
            raise SettingError(f"the key in {key_variable} has characters that no key has. Set it again.")
        self._opener = build_opener(_NoRedirects, *([ProxyHandler({})] if is_local else []))
        self._said = ""
        self._interval_s, self._next, self._lock, self._stop = 60 / requests_per_minute, 0.0, Lock(), Event()

    def stop(self) -> None:
        """End all waiting; what has been sent is still answered."""
        self._note("waiting for the answers to what was sent")
        self._stop.set()

    def ask(self, body: Mapping[str, Any]) -> str:
        """Return what the model writes.

        A RefusedRequestError says that this request is refused, an EndpointError that all are, or that the endpoint
        stays busy.
        """
        for number in count(1):
            self._wait()
            try:
                return self._text(self._send(json.dumps(body).encode()))
            except _BusyError as busy:
                seconds = _BACKOFF_S * 2 ** (number - 1) if busy.seconds is None else busy.seconds
                if number == _TRIES or seconds > _MAX_WAIT_S:
                    again = f" and asks to wait {seconds:.0f} s" if busy.seconds else ""
                    cure = "Try later, with fewer --requests-per-minute, or check --url"
                    raise self._error(f"{busy}{again}", cure) from None
                said = f"{self._url} {busy}; waiting {seconds:.0f} s"
                with self._lock:
                    later = max(self._next, time.monotonic() + seconds)
                    is_new = said != self._said or later > self._next + _SAID_AGAIN_S
                    self._said, self._next = said, later
                if is_new:  # not once for each request that was sent
                    self._note(said)
        raise AssertionError  # count() has no end

    def _wait(self) -> None:
        """Wait until requests are one interval apart, and none is sent while the endpoint is busy."""
        with self._lock:
            begin = max(time.monotonic(), self._next)
            self._next = begin + self._interval_s
        if self._stop.wait(begin - time.monotonic()):
            raise self._error("was not asked any more", "Another request has failed")

    def _send(self, body: bytes) -> bytes:
        headers = {
            "Content-Type": "application/json",
            **({"Authorization": f"Bearer {self._key}"} if self._key else {}),
        }
        try:
            with self._opener.open(Request(self._url, body, headers), timeout=_TIMEOUT_S) as response:
                content = response.read(_MAX_BYTES + 1)
                promised = response.headers.get("Content-Length", "")
        except HTTPError as error:
            said = self._cleaned(_beginning(error)) or error.reason
            if error.code in _BUSY:
                raise _BusyError(f"answers {error.code} ({said})", error.headers.get("Retry-After", "")) from None
            refused = RefusedRequestError if error.code in _UNFIT else EndpointError
            cure = "Check --url, --model and --key-variable"
            raise self._error(f"answers {error.code} ({said})", cure, refused) from None
        except TimeoutError:
            raise _BusyError(f"didn't answer within {_TIMEOUT_S:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise _BusyError(f"can't be reached ({shortened(str(error) or type(error).__name__)})") from None
        if promised.isdecimal() and len(content) < min(int(promised), _MAX_BYTES + 1):
            raise _BusyError("ended its answer early")
        if len(content) > _MAX_BYTES:
            raise self._error(f"answers with more than {_MAX_BYTES} bytes", "Check --url")
        return content

    def _text(self, content: bytes) -> str:
        try:
            found = json.loads(content)["choices"][0]["message"]["content"] or ""
            parts = found if isinstance(found, list) else [{"text": found}]
            return "".join(str(part["text"]) for part in parts if "text" in part)
        except (ValueError, LookupError, TypeError, RecursionError):
            found = f"answers something that is no chat completion ({self._cleaned(content[:2000])})"
            cure = "Check --url: it ends before /chat/completions, often in /v1"
            raise self._error(found, cure, RefusedRequestError) from None

    def _cleaned(self, content: bytes) -> str:
        """Return the beginning of what an endpoint says, without the key, which some repeat."""
        text = content.decode("utf-8", "replace")
        return shortened(" ".join((text.replace(self._key, "***") if self._key else text).split()))

    def _error(self, found: str, cure: str, kind: type[EndpointError] = EndpointError) -> EndpointError:
        return kind(f"{self._url} {found}", cure)


def _scheme_and_host(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and not parts.query and "@" not in parts.netloc and parts.port != 0
    except ValueError:
        parts, is_valid = urlsplit(""), False
    if not (is_valid and parts.hostname and re.fullmatch("[!-~]+", url)):
        raise SettingError("--url is not valid: expected e.g. https://host/v1, without a key or password in it.")
    return parts.scheme, parts.hostname


def _beginning(error: HTTPError) -> bytes:
    try:
        with error:
            return error.read(2000)
    except (OSError, http.client.HTTPException):
        return b""


class _BusyError(Exception):
    """What a busy endpoint says, and the seconds of its Retry-After, which may be a date; None without."""

    def __init__(self, found: str, retry_after: str = "") -> None:
        super().__init__(found)
        self.seconds: float | None = None
        if re.fullmatch(r"\d{1,9}(\.\d+)?", text := retry_after.strip()):
            self.seconds = float(text)
        elif text:
            with suppress(ValueError, TypeError):  # neither, or without a time zone
                self.seconds = max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())


class _NoRedirects(HTTPRedirectHandler):
    @override
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        """Refuse: another host would get the texts and the key."""
