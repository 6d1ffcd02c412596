"""A server that is killed or asked to end while it answers: no wrong answer, and the next one starts on its port."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

from faults.commands import Running
from faults.trials import Outcome, Trial, ended_trial
from faults.world import TRAINED, World
from helpers.ports import free_port

_QUESTION = json.dumps({"query": "my card is lost", "texts": ["block the card", "hello", "which card"]}).encode()


def serve_once(world: World, seed: int, number: int) -> Trial:
    """End a server at any moment while it answers, and start another."""
    rng = random.Random(f"{seed}/serve/{number}")
    how = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)[number % 3]
    world.renew()
    port = free_port()
    first = _started(world, port)
    expected = _answer(port)
    killer = threading.Timer(rng.random(), first.signal, [how])
    killer.start()
    is_right = True
    while first.process.is_alive():
        try:
            is_right &= _answer(port) == expected
        except urllib.error.HTTPError as error:
            is_right &= error.code == 503
        except (HTTPException, OSError):
            time.sleep(0.01)
        except ValueError:  # half of an answer
            is_right = False
    second = _started(world, port)
    is_right &= _answer(port) == expected
    second.signal(signal.SIGTERM)
    ends = [first.ended(), second.ended()]
    outcomes: list[Outcome] = [] if is_right else ["different"]
    if any(end.code not in (0, -signal.SIGKILL) or "Traceback" in end.err for end in ends):
        outcomes.append("untyped")
    left = [*([] if how == signal.SIGKILL else ends[0].temporary), *world.left("run bert", ends[1])]
    return ended_trial(f"serve: {how.name}", f"{seed}/{number}", outcomes, left, "\n".join(end.err for end in ends))


def _started(world: World, port: int) -> Running:
    words = ("serve", TRAINED, "--executor", "local", "--port", str(port))
    running = Running(words, world.now)
    while "Ctrl-C stops it" not in running.written("err"):
        assert running.process.is_alive(), running.ended().err
        time.sleep(0.02)
    return running


def _answer(port: int) -> Any:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/rerank", _QUESTION, headers)
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)
