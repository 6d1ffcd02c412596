"""A server that is killed or asked to end while clients ask: no wrong answer, and the next one starts on its port."""

from __future__ import annotations

import json
import random
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from typing import Any

from faults.commands import Ended, Running, renewed
from faults.damages import leftovers
from faults.tally import Outcome, Trial
from faults.world import TRAINED, World

_READY = "Ctrl-C stops it"
_CLIENTS = 3
_JSON = {"content-type": "application/json"}
_ASKED = json.dumps({"query": "my card is lost", "texts": ["block the card", "hello", "which card"]}).encode()


class Serving:
    """A server of the world's run, and the answer that it gives."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._port = _free_port()
        renewed(world.now, world.pristine)
        running = self._start(600)
        assert self._is_ready(running), running.ended().err
        self._expected = self._ask()
        running.signal(signal.SIGTERM)
        assert running.ended().code == 0

    def kill_once(self, seed: int, number: int, limit_s: float) -> Trial:
        """End a server at any moment, while it starts or answers; then start another."""
        rng = random.Random(f"{seed}/serve/{number}")
        how = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)[number % 3]
        outcomes: list[Outcome] = []
        renewed(self._world.now, self._world.pristine)
        running = self._start(limit_s)
        is_loading = rng.random() < 0.3
        if is_loading:
            self._wait(running, lambda: running.has_begun)
            time.sleep(0.5 + 2 * rng.random())
        elif not self._is_ready(running):
            outcomes.append("untyped")
        clients = _Clients(self._ask, self._expected)
        time.sleep(rng.random())
        running.signal(how)
        first = running.ended()
        clients.stop()
        outcomes += _outcomes(first, how, (0, 128 + how) if is_loading else (0,))
        if clients.num_wrong:
            outcomes.append("different")
        again = self._start(limit_s)
        if not self._is_ready(again) or self._ask() != self._expected:
            outcomes.append("different")
        again.signal(signal.SIGTERM)
        second = again.ended()
        outcomes += _outcomes(second, signal.SIGTERM, (0,))
        left = [*(second.temporary if how == signal.SIGKILL else (*first.temporary, *second.temporary))]
        left += leftovers(self._world.now)
        if left:
            outcomes.append("leftovers")
        detail = f"{how.name}, {clients.num_right} right answers: {first.err[-1500:]}\n{second.err[-1500:]}\n{left}"
        return Trial(
            f"kill: serve, {how.name}", f"{seed}/{number}", tuple(dict.fromkeys(outcomes)) or ("identical",), detail
        )

    def _start(self, limit_s: float) -> Running:
        return Running(
            ("serve", TRAINED, "--executor", "local", "--port", str(self._port)), self._world.now, limit_s=limit_s
        )

    def _is_ready(self, running: Running) -> bool:
        return self._wait(running, lambda: _READY in running.written("err"))

    def _wait(self, running: Running, moment: Callable[[], bool]) -> bool:
        while not moment():
            if not running.process.is_alive():
                return False
            time.sleep(0.02)
        return True

    def _ask(self) -> Any:
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}/rerank", _ASKED, _JSON)
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.load(response)


class _Clients:
    """Threads that ask without end; an answer is right, wrong, or doesn't arrive."""

    def __init__(self, ask: Any, expected: Any) -> None:
        self._ask, self._expected, self._stopped = ask, expected, threading.Event()
        self.num_right = self.num_wrong = 0
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._go) for _ in range(_CLIENTS)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _go(self) -> None:
        while not self._stopped.is_set():
            try:
                is_right = self._ask() == self._expected
            except (urllib.error.URLError, HTTPException, OSError) as error:
                if isinstance(error, urllib.error.HTTPError):
                    is_right = error.code == 503
                else:
                    time.sleep(0.01)
                    continue
            except ValueError:  # half of an answer
                is_right = False
            with self._lock:
                self.num_right += is_right
                self.num_wrong += not is_right


def _outcomes(ended: Ended, how: signal.Signals, codes: tuple[int, ...]) -> list[Outcome]:
    if ended.hung:
        return ["hung"]
    if how == signal.SIGKILL or (ended.code in codes and "Traceback" not in ended.err):
        return []
    return ["untyped"]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
