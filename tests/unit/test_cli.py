"""What the command line says of wrong input: what was found, and what to do. No Ray is started."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from helpers.raw_corpora import write_ranking

from icalib.core.run_folder import RUN_VERSION
from icalib.core.version import __version__
from icalib.data.prepare import PrepareSettings, prepare


def test_version_verbs_and_methods_are_listed(icalib) -> None:
    assert icalib("--version") == (0, f"icalib {__version__}\n", "")
    verbs = "demo prepare run compare report show methods simulate score evaluate predict"
    assert set(verbs.split()) <= set(icalib("--help")[1].split())
    methods = icalib("methods")[1].splitlines()
    assert len(methods) == len({line.split()[0] for line in methods}) >= 8


def test_a_preset_comes_before_other_settings_and_is_listed(icalib) -> None:
    _, out, _ = icalib("show", "bert-fp")
    _, light, _ = icalib("show", "bert-fp", "--preset", "light", "--set", "domain_pretraining.max_length=64")
    assert "\ndomain_pretraining.training.epochs = 25\n" in out
    assert "\ndomain_pretraining.training.epochs = 2\n" in light
    assert "\ndomain_pretraining.max_length = 64\n" in light
    for text in (out, light):
        assert "--preset light" in text.partition("\ndomain_pretraining.training.epochs")[2]
    assert "        the paper: " in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "their_lab.methods.idea7"], "PYTHONPATH"),
        (["show", "bert-fp", "--preset", "ligth"], "it has: paper-icast, light"),
        (["run", "bert"], "`data` is missing"),
        (["run", "nowhere/config.yaml"], "no config at"),
        (["run", "a/config.yaml", "--seed", "2", "--set", "no.such=1"], "found `seed`, `settings` beside it"),
        (["score", "nowhere", "--data", "nowhere", "--split", "dev"], "Choose one of: train, validation, test"),
        (["show", "icast", "--set", "encoder.backbone={a: "], "not valid YAML"),
        (["show", "./my_method.py"], "named by its import path"),
    ],
)
def test_wrong_settings_are_named_with_the_cure(icalib, arguments: list[str], said: str) -> None:
    code, _, err = icalib(*arguments)
    assert code == 2
    assert "error: " in err
    assert said.lower() in err.lower()
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--preset", "light"], "none of these methods has a preset"),
        (["--set", "regime.training.epohcs=2"], "reads such a setting. Did you mean `regime.training.epochs`"),
    ],
)
def test_what_fits_no_method_is_refused(icalib, tiny_pools: Path, arguments: list[str], said: str) -> None:
    code, _, err = icalib("compare", "bert", "--data", tiny_pools, *arguments)
    assert code == 2
    assert said.lower() in err.lower()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--labelled", "0"], "`labelled` is 0.0"),
        (["--limit", "many"], "--limit many can't be parsed"),
        (["--limit", "train=0"], "expected numbers above 0"),
        (["--experiment", "../elsewhere"], "`experiment` is '../elsewhere', which is not a valid folder name"),
    ],
)
def test_wrong_options_of_run(icalib, tiny_pools: Path, options: list[str], said: str) -> None:
    code, _, err = icalib("run", "bert", "--data", tiny_pools, *options)
    assert code == 2
    assert said in err


def test_other_pools_are_looked_at_before_anything_is_trained(icalib, tiny_pools: Path, tmp_path: Path) -> None:
    command = ["compare", "bert", "--data", tiny_pools, "--runs", tmp_path / "runs"]
    code, _, err = icalib(*command, "--shift", tmp_path / "nowhere")
    assert code == 2
    assert "not a pool folder" in err
    code, _, err = icalib(*command, "--shift", tiny_pools, "--shift", tiny_pools)
    assert code == 2
    assert "have the same name" in err
    assert not (tmp_path / "runs").exists()


def test_an_output_file_is_looked_at_before_models_are_loaded(icalib, tmp_path: Path) -> None:
    _, _, err = icalib("predict", tmp_path / "nowhere", tmp_path / "questions.jsonl", "--out", tmp_path)
    assert f"can't write '{tmp_path}': it is a folder. Name a file." in err


def test_a_config_with_bad_fields_is_refused_by_file_and_field(icalib, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(f"version: {RUN_VERSION}\nlabelled: 1.5\nlimit: {{train: 0, dev: 3}}\n")
    code, _, err = icalib("run", config)
    assert code == 2
    assert str(config) in err
    assert all(field in err for field in ("labelled", "limit.train", "limit.dev", "--fresh"))
    assert "Traceback" not in err


def test_icast_without_intents_offers_tsst(icalib, tmp_path: Path) -> None:
    source = write_ranking(tmp_path / "queries.jsonl", lambda query: 1)
    prepare(source, tmp_path / "pools", PrepareSettings(labelled=0.5))
    code, _, err = icalib("compare", "icast", "--data", tmp_path / "pools", "--runs", tmp_path / "runs")
    assert code == 2
    assert "Use `tsst`" in err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (OSError(errno.ESTALE, "Stale file handle", "/shared/runs/x"), "Stale file handle: '/shared/runs/x'"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),  # of a write: without a path
    ],
)
def test_storage_that_fails_is_no_traceback(
    error: OSError, found: str, icalib, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**options: object) -> None:
        raise error

    monkeypatch.setattr("icalib.cli.app.app", fail)
    code, _, err = icalib("run", "bert")
    assert code == 2
    assert f"{found}. Check the storage" in err
