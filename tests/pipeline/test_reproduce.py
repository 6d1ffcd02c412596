"""Every table of the papers end to end: from the raw format by `prepare --protocol` to a page, on tiny models."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.raw_corpora import ProtocolPools
from helpers.tiny_language_models import write_tiny_language_model
from helpers.tiny_models import pool_texts, write_tiny_bert
from unit.reports.pages import read_page, visible

from icalib.api.settings import check_settings, composed
from icalib.core.errors import SettingError
from icalib.core.run_folder import RunFolder
from icalib.tables.table import load_table, table_names

SMALL = {
    "encoder.budget": {"max_context_tokens": 60, "max_candidate_tokens": 12},
    "encoder.num_layers": 1,
    "encoder.max_words": 8,
    "encoder.embedding_size": 16,
    "regime.training.epochs": 1,
    "regime.teacher.epochs": 1,
    "regime.student.epochs": 1,
    "regime.num_rounds": 1,
    "regime.num_members": 2,
    "regime.rule.positive_threshold": 0.51,
    "regime.training.learning_rate": 1e-3,
    "domain_pretraining.training.epochs": 1,
    "domain_pretraining.max_windows": 20,
    "pretraining.word_vectors.training.epochs": 1,
    "pretraining.intent_classifier.training.epochs": 1,
    "uncertainty.num_passes": 2,
    "head.num_features": 32,
    "head.support.size": 8,
    "head.num_chains": 2,
    "head.num_steps": 2,
}
TIMES = {"gpf-table1": (), "icast-table2": pytest.mark.slow, "pg-table1": pytest.mark.slow}
"""When tables are made: one of each paper often, the others at night."""


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> ProtocolPools:
    return ProtocolPools(tmp_path_factory.mktemp("corpora"), 240)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=TIMES.get(name, pytest.mark.nightly)) for name in table_names()]
)
def test_a_table_is_made_from_the_raw_corpus(name: str, pools: ProtocolPools, tmp_path: Path, icalib: Any) -> None:
    table = load_table(name)
    corpus = table.corpora[table_names().index(name) % len(table.corpora)]  # each format has its turn
    data = pools(str(table.protocol), corpus)
    bert = write_tiny_bert(tmp_path / "bert", pool_texts(data))
    bart = write_tiny_language_model(tmp_path / "bart", "bart", pool_texts(data)[:200])
    settings = {
        **SMALL,
        "regime.generator": {"target": "language-model", "model": str(bart), "training": {"epochs": 1}},
    }
    changes = [f"--set={path}={json.dumps(value)}" for path, value in settings.items() if _fits(name, path)]
    others = [one for one in table.corpora if one != corpus][:1] if table.kind == "shift" else []
    renamed = [Path(shutil.copytree(pools(str(table.protocol), one), tmp_path / f"other-{one}")) for one in others]
    shift = [word for other in renamed for word in ("--shift", other)]
    code, said, _ = icalib(
        "reproduce", name, "--data", data, "--runs", tmp_path / "runs", "--executor", "local", "--seeds", 1,
        "--backbone", bert, "--limit", "train=12,validation=8,test=8", "--labelled", max(table.labelled),
        *changes, *shift,
    )  # fmt: skip
    assert code == 0
    (page,) = (tmp_path / "runs").glob(f"{table.preset}-bert-*/{name}-{data.name}.html")  # not the paper's backbone
    runs = [RunFolder(path) for path in page.parent.iterdir() if path.is_dir()]
    assert len({run.path.name for run in runs if run.is_finished}) == len(table.rows)
    assert "failed" not in said
    lines = re.findall(
        r'<tr class="(ours|theirs)"><th scope="row">(.*?)</th><td>(.*?)</td><td class="number">(.*?)</td>',
        html.unescape(page.read_text()),
    )
    values = {label: value for kind, label, _, value in lines if kind == "ours"}
    assert all(values[row.label].strip(" –") for row in table.rows)
    for other in renamed:
        (cells,) = re.findall(rf"tested on {other.name}</h.>.*?</table>", html.unescape(page.read_text()), re.DOTALL)
        assert re.search(r'class="ours".*?<td class="number">0\.', cells, re.DOTALL)
    if any(row.published for row in table.rows):
        assert f"encoder.backbone = {bert}, the p" in visible(read_page(page))  # paper, or preset where it has none
        sources = [source for kind, _, source, _ in lines if kind == "theirs"]
        assert all(source.startswith(corpus) for source in sources)  # its own corpus' values, and no others'
        assert sources or name == "pg-table4"  # which has none for MANtIS


def _fits(name: str, path: str) -> bool:
    """Whether any row of a table has a setting."""
    table = load_table(name)
    methods = [composed(row.method, table.preset, own=row.settings) for row in table.rows]
    try:
        check_settings({path: None}, methods)
    except SettingError:
        return False
    return True
