"""README, the pages of docs/ and the notebooks agree with the project: links, commands, code, quoted messages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from helpers.pages import FENCED, INDENTED, INLINE, shell_lines, text_of, words_of

from icalib.cli.app import app
from icalib.data.prepare import prepare
from icalib.data.settings import PrepareSettings

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = [README, *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "examples").glob("*.ipynb"))]
DEVELOPERS = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
COMMANDS: dict[str, Any] = vars(typer.main.get_command(app))["commands"]

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def ids(values: list[Path]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in values]


def without_code(text: str) -> str:
    return INLINE.sub("", FENCED.sub("", text))


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text_of(page)), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [*PAGES, *DEVELOPERS], ids=ids([*PAGES, *DEVELOPERS]))
def test_links_resolve(page: Path) -> None:
    for link in LINK.findall(without_code(text_of(page))):
        if link.startswith(("http://", "https://")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.is_file(), link
        assert target.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors(target), link


def test_the_index_links_every_page_and_the_readme_links_the_index() -> None:
    linked = set(LINK.findall((DOCS / "index.md").read_text()))
    assert {page.name for page in DOCS.glob("*.md")} - {"index.md"} <= linked
    assert "docs/index.md" in LINK.findall(README.read_text())


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 130


def test_a_metric_in_the_readme_is_in_a_table_of_results() -> None:
    """Metrics have three decimals, there as here."""
    pages = [(DOCS / name).read_text() for name in ("results.md", "studies.md", "cost.md")]
    rows = [line for page in pages for line in page.splitlines() if line.startswith("|")]
    prose = INDENTED.sub("", without_code(README.read_text()))
    claimed = set(re.findall(r"\b0\.\d{2,}\b", prose))
    assert claimed
    assert claimed - set(re.findall(r"\b0\.\d{3}\b", "\n".join(rows))) == set()


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_python_code_compiles(page: Path) -> None:
    for _, language, code in FENCED.findall(text_of(page)):
        if language == "python":
            compile(code, str(page), "exec")


def inline_words(text: str) -> Iterator[list[str]]:
    for code in INLINE.findall(FENCED.sub("", text)):
        yield from words_of(" ".join(code.split()))


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words name, which may be in a group of commands, and its arguments."""
    command = COMMANDS[words[0]]
    if hasattr(command, "commands") and words[1:]:
        assert words[1] in command.commands, f"icalib {words[0]} {words[1]}"
        return command.commands[words[1]], words[2:]
    return command, words[1:]


def check_verb_and_flags(words: list[str]) -> None:
    """Placeholders may stand for arguments and values."""
    if words == ["--help"]:
        return
    assert words[0] in COMMANDS, f"icalib {words[0]}"
    command, arguments = command_of(words)
    flags = {flag for option in command.params for flag in [*option.opts, *option.secondary_opts]}
    for word in arguments:
        if word.startswith("-"):
            assert word.partition("=")[0] in flags | {"--help"}, f"icalib {shlex.join(words)}"


COMMAND_LINES = [
    pytest.param(words, id=f"{page.name}: {' '.join(words)[:60]}")
    for page in PAGES
    for line in shell_lines(text_of(page))
    for words in words_of(line)
]


def parse(words: list[str]) -> None:
    """Parse a command as the command line does, without running it."""
    check_verb_and_flags(words)
    command, arguments = command_of(words)
    command.make_context(words[0], arguments)


@pytest.mark.parametrize("words", COMMAND_LINES)
def test_a_command_of_a_block_parses(words: list[str]) -> None:
    parse(words)


def test_commands_of_blocks_are_found() -> None:
    verbs = {words.values[0][0] for words in COMMAND_LINES}
    assert {"prepare", "run", "compare", "curve", "sweep", "predict", "submit", "doctor"} <= verbs


@pytest.mark.parametrize("page", PAGES, ids=ids(PAGES))
def test_commands_within_sentences_name_verbs_and_flags(page: Path) -> None:
    for words in inline_words(text_of(page)):
        check_verb_and_flags([word for word in words if word not in ("…", "...")])


def test_dialogues_like_that_of_the_readme_can_be_prepared(tmp_path: Path) -> None:
    (example,) = (code for _, language, code in FENCED.findall(README.read_text()) if language == "jsonl")
    lines = [example.replace('"1"', f'"{n}"').replace("Restart it.", f"Restart it {n} times.") for n in range(60)]
    (tmp_path / "dialogues.jsonl").write_text("".join(lines))
    settings = PrepareSettings(num_candidates=2, negative_sampler="random")  # the quickest to load
    assert sum(prepare(tmp_path / "dialogues.jsonl", tmp_path / "pools", settings).num_pools.values()) == 60


def test_the_messages_of_the_faq_are_those_of_the_code() -> None:
    """A quoted message is the first cell of a row; `…` stands for names and numbers."""
    code = "\n".join(path.read_text() for path in (ROOT / "icalib").rglob("*.py"))
    code = re.sub(r'"\s*\n\s*f?"', "", code)  # texts that continue on the next line
    messages = re.findall(r"^\| `([^`]+)`", (DOCS / "faq.md").read_text(), flags=re.MULTILINE)
    assert len(messages) > 18
    parts = {part.strip() for message in messages for part in message.split("…")}
    assert [part for part in parts if part not in code and part.replace('"', '\\"') not in code] == []


def test_each_fault_of_the_page_on_run_folders_names_tests_that_exist() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    section = (DOCS / "run-folder.md").read_text().split("## When something fails")[1].split("\n## ")[0]
    rows = re.findall(r"^\| .* \|$", section, flags=re.MULTILINE)[1:]
    assert len(rows) > 8
    for row in rows:
        names = re.findall(r"`(test_\w+)`", row)
        assert names, row
        assert [name for name in names if f"def {name}(" not in tests] == []
