"""The papers' tables as they are resolved: every row's settings against the protocol, before anything runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from helpers.raw_corpora import ProtocolPools
from helpers.tiny_language_models import write_tiny_language_model

from icalib.api.options import RunTemplate
from icalib.api.reproduction import of_protocol, planned_rows, prepare_hint
from icalib.core.component import with_settings
from icalib.core.files import FOLDER_NAME
from icalib.data.pools import read_pool_set
from icalib.methods.catalogue import load_method
from icalib.reports.paper_table import TableRow, corpus_of
from icalib.tables.table import Row, Table, load_table, table_names

CORPORA = [(name, corpus) for name in table_names() for corpus in load_table(name).corpora]


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> ProtocolPools:
    return ProtocolPools(tmp_path_factory.mktemp("corpora"), 700)


@pytest.fixture(scope="module")
def bart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_language_model(tmp_path_factory.mktemp("bart"), "bart", ["restart it", "hello"])


DIFFERS = {("pg", "MANtIS"): ["BM25's negatives in training pools, the paper: random ones there (§4.4)"]}


def planned(name: str, data: Path, bart: Path, **changes: Any) -> list[TableRow]:
    """A table's rows; the generator that GRAY and BIG need is at hand."""
    settings = {"regime.generator.model": str(bart)} if name.startswith("icast-table2") else {}
    return planned_rows(load_table(name), RunTemplate.of({"settings": settings, **changes}, data))


@pytest.mark.parametrize(("name", "corpus"), CORPORA)
def test_resolved_settings_are_the_protocol(name: str, corpus: str, pools: ProtocolPools, bart: Path) -> None:
    table = load_table(name)
    data = pools(str(table.protocol), corpus)
    assert corpus_of(read_pool_set(data), table) == corpus
    assert prepare_hint(table, data) is None
    for one in planned(name, data, bart):
        assert not one.error
        assert [mark for mark in one.marks if "generator" not in mark] == DIFFERS.get((str(table.protocol), corpus), [])
        assert (
            len(one.settings) == table.seeds == {"icast": 1}.get(str(table.protocol), 1 if table.kind == "cost" else 5)
        )
        assert {settings.labelled for settings in one.settings} == {one.labelled}
        method = one.settings[0].settings
        assert (method.similarity, method.intent, method.cross) == (None, None, True)
        assert str(table.preset) == one.settings[0].experiment.removesuffix("-roberta-base")
        check_exceptions(one, table, corpus, method.regime)


def check_exceptions(one: TableRow, table: Table, corpus: str, regime: Any) -> None:
    """What the protocols change for some corpora, fractions and rows; tests/golden has the presets themselves."""
    if one.row.method in ("icast", "icast-teacher") and "gain_threshold" not in str(one.row.settings):
        assert regime.rule.gain_threshold == (0.0 if corpus == "MANtIS" and one.labelled > 0.01 else 0.02)
    if one.row.label.startswith("-ICGE"):
        assert regime.rule.gain_threshold == -1.0
        assert regime.rule.confidence_threshold == (1.0 if "ALC" in one.row.label else 0.2)
    if hasattr(regime, "num_rounds"):
        assert regime.num_rounds == (8 if one.labelled == 0.1 else 4)
    if table.protocol != "icast":
        assert (one.labelled, regime.train_negatives()) == (1.0, {"gpf": 9, "pg": 1}[str(table.protocol)])
    if table.protocol == "pg":
        assert regime.training.epochs == (1 if corpus == "MANtIS" else 3)


def test_icasts_cases_are_of_the_runs_of_its_table_2(pools: ProtocolPools, bart: Path) -> None:
    def runs(name: str) -> set[tuple[str, float]]:
        return {(run.method, run.labelled) for one in planned(name, data, bart) for run in one.settings}

    data = pools("icast", "MANtIS")
    assert runs("icast-table4") < runs("icast-table2")


def test_everything_that_differs_is_marked_before_anything_runs(
    pools: ProtocolPools, tiny_bert: Path, bart: Path
) -> None:
    data = pools("icast", "MSDialog")
    settings = {"regime.training.epochs": 2, "calibration": "temperature", "loss": "pool-cross-entropy"}
    changes = {"backbone": str(tiny_bert), "limit": {"test": 20}, "settings": settings, "resample_labels": True}
    (row, *_) = planned_rows(load_table("pg-table1"), RunTemplate.of(changes, data), labelled=[0.5], seeds=2)
    text = "\n".join(row.marks)
    for said in (
        f"encoder.backbone = {tiny_bert}, the paper: bert-base-cased",
        "regime.training.epochs = 2, the paper: 3",
        "calibration = temperature, the paper: null",
        "loss = pool-cross-entropy, the paper: binary-cross-entropy",
        "labelled pools drawn for each seed (--resample-labels)",
        "0.5 labelled, the paper: 1",
        "2 seeds, the paper: 5",
        "test pools (--limit)",
        "negatives: bm25-response, the paper: random",
    ):
        assert said in text
    hint = prepare_hint(load_table("pg-table1"), data)
    assert hint is not None
    assert hint.endswith("--protocol pg")


def test_a_rows_settings_keep_their_types(tiny_pools: Path) -> None:
    settings = {"calibration": None, "encoder.budget": {"max_context_tokens": 50, "max_candidate_tokens": 30}}
    row = {"label": "A", "method": "bert", "settings": settings}
    table = Table(title="T", source="S", kind="metrics", metrics=("F1",), rows=(Row.model_validate(row),))
    ((planned,),) = (one.settings for one in planned_rows(table, RunTemplate.of({}, tiny_pools), [0.05]))
    assert planned.settings == with_settings(load_method("bert"), settings)


def test_another_preset_or_backbone_has_another_folder(tiny_pools: Path) -> None:
    def folder(table: str = "pg-table1", **changes: Any) -> str:
        return of_protocol(load_table(table), RunTemplate.of(changes, tiny_pools)).experiment

    assert folder() == folder("pg-table2") == folder(backbone="bert-base-cased") == "paper-pg"
    assert folder("pg-table4") == folder(backbone="roberta-base") == "paper-pg-roberta-base"
    others = [
        *(folder(backbone=one) for one in ("minilm", "models/minilm", "other/minilm")),
        *(folder(preset="bi-encoder", backbone=one) for one in (None, "minilm-l6")),
    ]
    assert len({"paper-pg", *others}) == 1 + len(others)
    assert all(re.search(FOLDER_NAME, name) for name in others)
    assert folder(backbone="minilm", experiment="mine") == "mine"
