"""Write docs/first-ten-minutes.md: what a terminal shows of the first commands, captured with tmux.

    python docs/first_ten_minutes.py            # needs tmux; takes some minutes

The commands run in an empty folder, in a terminal of 80 columns. Times differ from machine to machine, so that the page
is written by hand-started runs of this script, and not by a test.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parent / "first-ten-minutes.md"
WIDTH, HEIGHT = 80, 50
TIMEOUT_S = 900
_TITLE = """# The first ten minutes

What a terminal of 80 columns shows of the first commands, from a corpus to answers. `docs/first_ten_minutes.py` ran
them one after the other in an empty folder, on two CPU cores, and wrote this page. The dialogues are simulated; for
your own put a file of any [format](data.md) in place of `dialogues.jsonl`, and leave out `--limit` and the settings,
which make it quick.
"""


@dataclass(frozen=True)
class Step:
    """One command of the page.

    Attributes:
        text: what is said about it.
        command: what is typed.
        snapshot_s: seconds after which the screen is captured while the command runs; 0 for never.
    """

    text: str
    command: str
    snapshot_s: float = 0.0


STEPS = (
    Step("What is there:", "icalib --help"),
    Step("A corpus to try it with:", "icalib simulate dialogues.jsonl --dialogues 300"),
    Step("Look before preparing; this writes nothing:", "icalib prepare dialogues.jsonl --preview"),
    Step("Pools:", "icalib prepare dialogues.jsonl --out pools/desk --labelled 0.5"),
    Step(
        "Train, and compare with what needs no training. While it runs, each stage has a line that says what it does, "
        "how far it is and how long it will take:",
        "icalib compare bert --data pools/desk --seeds 1 --limit train=200,validation=60,test=60 "
        "--set encoder.num_layers=3 --set post_training.max_windows=500 --set regime.training.epochs=3",
        snapshot_s=60.0,
    ),
    Step("Where its report is, and how to see the curves:", "icalib open runs/default"),
    Step(
        "Ask it:",
        """echo '{"context": ["My printer hums."], "candidates": ["Restart it.", "Hello!"]}' > questions.jsonl"""
        " && icalib predict runs/default/bert-desk-0.5-s1 questions.jsonl",
    ),
)


class Terminal:
    """A terminal of tmux's own server, in a folder."""

    def __init__(self, folder: Path, width: int = WIDTH, height: int = HEIGHT) -> None:
        self._socket, self._folder = f"icalib-{os.getpid()}", folder
        environment = {"PS1": "$ ", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        variables = [f"{name}={value}" for name, value in environment.items()]
        self._tmux(
            "new-session", "-d", "-x", str(width), "-y", str(height), "-c", str(folder),
            shlex.join(["env", *variables, "bash", "--norc", "--noprofile"]),
        )  # fmt: skip
        self._tmux("set-option", "-g", "history-limit", "5000")

    def close(self) -> None:
        """End the server of this terminal."""
        self._tmux("kill-server")

    def run(self, step: Step) -> list[str]:
        """Run a command; returns the screens: while it runs, if asked for, and in the end."""
        done = self._folder / ".done"
        self._tmux("send-keys", "-R", "clear", "Enter")
        time.sleep(0.5)
        self._tmux("clear-history")
        self._tmux("send-keys", "-l", f"{step.command}; touch .done")
        self._tmux("send-keys", "Enter")
        started, screens = time.monotonic(), list[str]()
        while not done.exists():
            elapsed = time.monotonic() - started
            if elapsed > TIMEOUT_S:
                raise SystemExit(f"{step.command}: not finished after {TIMEOUT_S} s. Its screen:\n{self._screen()}")
            if step.snapshot_s and not screens and elapsed > step.snapshot_s:
                screens.append(self._screen())
            time.sleep(0.2)
        time.sleep(0.5)
        done.unlink()
        return [*screens, self._screen()]

    def _screen(self) -> str:
        """What the terminal shows, with what has scrolled away, without the prompt that waits."""
        lines = self._tmux("capture-pane", "-p", "-S", "-").splitlines()
        text = "\n".join(line.rstrip() for line in lines).rstrip().removesuffix("\n$")
        return text.replace("; touch .done", "", 1).rstrip()

    def _tmux(self, *arguments: str) -> str:
        command = ["tmux", "-L", self._socket, "-f", "/dev/null", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def page(steps: tuple[Step, ...], folder: Path) -> str:
    """Run the commands in an empty folder; returns the page."""
    parts = [_TITLE]
    terminal = Terminal(folder)
    try:
        for step in steps:
            blocks = [f"```text\n{screen}\n```" for screen in terminal.run(step)]
            parts += [f"{step.text}\n", "\n\nand in the end:\n\n".join(blocks) + "\n"]
    finally:
        terminal.close()
    return "\n".join(parts)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        PAGE.write_text(page(STEPS, Path(scratch)), encoding="utf-8")
    print(PAGE)
