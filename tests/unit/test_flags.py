"""Every option that a message, help text or docstring names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from typer.main import get_command
from unit.test_docs import COMMANDS, check_verb_and_flags

from icalib.cli import main  # noqa: F401  (registers the verbs)
from icalib.cli.app import app

PACKAGE = Path(__file__).parents[2] / "icalib"
FLAG = re.compile(r"(?<![\w-])(?<!var\()(--[a-z][a-z-]*[a-z])\b(?!\s*:)")
COMMAND = re.compile(r"`icalib ([a-z]+)([^`]*)`")
OF_OTHERS = {
    "--cached",  # git ls-files
    "--exclude-standard",  # git ls-files
    "--others",  # git ls-files
    "--generate",  # ray get-auth-token
    "--shm-size",  # docker run
    "--gpus",  # docker run
    "--logdir",  # tensorboard
    "--num-gpus",  # ray start
    "--force-reinstall",  # pip install
}


def known_options() -> set[str]:
    """The options of all verbs, and of icalib itself."""
    verbs = [get_command(app), *COMMANDS.values()]
    verbs += [one for verb in COMMANDS.values() for one in getattr(verb, "commands", {}).values()]
    return {name for verb in verbs for option in verb.params for name in option.opts + option.secondary_opts}


@cache
def texts() -> list[tuple[str, str]]:
    """Where each text of the code is, and the text; an f-string's parts are joined."""
    found: list[tuple[str, str]] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        inner = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
                found.append((f"{path}:{node.lineno}", "".join(map(str, parts))))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
                found.append((f"{path}:{node.lineno}", node.value))
    return found


def test_every_option_that_a_text_names_exists() -> None:
    known = known_options() | OF_OTHERS | {"--help"}
    named = {(where, flag) for where, text in texts() for flag in FLAG.findall(text)}
    assert len(named) > 100
    assert sorted(each for each in named if each[1] not in known) == []


def test_every_command_that_a_text_quotes_exists_with_its_options() -> None:
    quoted = [found for _, text in texts() for found in COMMAND.findall(text)]
    assert len(quoted) > 30
    for verb, rest in quoted:
        check_verb_and_flags([verb, *rest.split()])
