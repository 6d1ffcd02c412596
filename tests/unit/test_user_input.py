"""No text or file of a user ends in a traceback: parsers return a value, or raise an error that says what to do."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from helpers.hostile import VALUES, YAML_TEXTS, mutated
from hypothesis import given, settings
from hypothesis import strategies as st

from icalib.api.settings import changed, from_config, parsed_settings, variant_of
from icalib.cli.jobs import command_words
from icalib.cli.parsing import parsed_fractions, parsed_limit
from icalib.core.component import described, with_settings
from icalib.core.errors import IcalibError
from icalib.core.job_file import read_job_file
from icalib.core.run_folder import RUN_VERSION
from icalib.core.yaml_text import parse_yaml
from icalib.methods.catalogue import load_method
from icalib.pipeline.run import RunSettings
from icalib.sweeps.space import load_space
from icalib.tables.table import load_table

ROOT = Path(__file__).parents[2]
METHODS = ("icast", "pg-drr", "bm25", "bert-fp")
PATHS = sorted(
    {
        path
        for name in METHODS
        for path, _, _ in described(load_method(name))
        for path in (path, path.partition(".")[0], path.rpartition(".")[0] or path)
    }
)
TABLE = yaml.safe_load((ROOT / "icalib/tables/gpf-table1.yaml").read_text())
JOB = yaml.safe_load((ROOT / "jobs/icast.yaml").read_text())
CONFIG = {
    "version": RUN_VERSION,
    **RunSettings(
        method="icast",
        data=Path("/pools"),
        labelled=0.1,
        seed=1,
        limit={"train": 9},
        backbone="minilm",
        experiment="x",
        settings=load_method("icast"),
    ).model_dump(mode="json"),
}


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """Let errors that a user can fix pass, if they are short enough to be read."""
    message = ""
    try:
        yield
    except IcalibError as error:
        message = str(error)
    assert len(message) < 8000


def written(text: str, name: str = "file.yaml") -> Path:
    path = Path(tempfile.mkdtemp()) / name
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


@given(YAML_TEXTS)
@settings(max_examples=60)
def test_yaml_is_of_json_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        json.dumps(parse_yaml(text))


@given(st.sampled_from(METHODS), st.sampled_from(PATHS) | st.text(max_size=9), YAML_TEXTS)
@settings(max_examples=60)
def test_set(method: str, path: str, text: str) -> None:
    with refused():
        changed(variant_of(method, None), parsed_settings([f"{path}={text}"]))


@given(st.sampled_from(METHODS), st.dictionaries(st.sampled_from(PATHS), VALUES, min_size=1, max_size=3))
def test_settings(method: str, values: dict[str, Any]) -> None:
    with refused():
        with_settings(load_method(method), values)


@given(mutated(CONFIG))
def test_configs(values: Any) -> None:
    with refused():
        from_config(written(yaml.safe_dump(values)))


@given(mutated(JOB))
def test_jobs(values: Any) -> None:
    path = written(yaml.safe_dump(values))
    with refused():
        command_words(read_job_file(path, {}), path)


@given(mutated(TABLE))
def test_tables(values: Any) -> None:
    with refused():
        load_table(str(written(yaml.safe_dump(values))))


SPACE = '''"""Which?"""
METHOD = "icast"
METRICS = {"F1": "maximize"}
def suggest(trial):
    return {"seed": 1}
def grid():
    return [{"a": 1}]
'''
STATEMENTS = st.builds(
    "{} = {!r}\n".format,
    st.sampled_from(["__doc__", "METHOD", "METRICS", "SAMPLER", "PRUNER", "suggest", "grid", "__file__", "__name__"]),
    VALUES,
) | st.sampled_from(
    [
        "__doc__ = 5\n",
        "raise SystemExit\n",
        "raise SystemExit(3)\n",
        "import sys; sys.exit()\n",
        "1/0\n",
        "import nowhere\n",
        "(",
        "\0",
        "METRICS = {'F1': []}\n",
        "METRICS = {5: 'maximize'}\n",
        "SAMPLER = []\n",
        "def suggest(trial): raise SystemExit\n",
        "def grid():\n    yield {}\n    1/0\n",
        "def grid():\n    raise SystemExit\n",
        "def grid(): return 5\n",
        "import numpy; grid = lambda: [{'a': numpy.zeros(2)}, {'a': numpy.zeros(2)}]\n",
        "del suggest\n",
        "del __file__\n",
    ]
)


@given(st.lists(STATEMENTS, min_size=1, max_size=3))
def test_spaces(statements: list[str]) -> None:
    path = written(SPACE + "".join(statements), "space.py")
    with refused():
        space = load_space(str(path))
        space.points()
        space.proposed(None)


@given(st.sampled_from(["1" * 5000, "9" * 19, "train=" + "1" * 5000, "²", "١", "-1", "train=1,train=2"]) | st.text())
def test_limits_and_fractions(text: str) -> None:
    for parse in (parsed_limit, parsed_fractions):
        with refused():
            parse(text)
