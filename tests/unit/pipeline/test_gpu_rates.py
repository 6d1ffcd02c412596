"""Times on GPUs that are not here follow from shapes and a table, and say so."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.runs import run_context, small_settings
from helpers.tiny_models import pool_texts, ranker_config, write_tiny_bert

from icalib.core.errors import SettingError
from icalib.encoders.iart import IART
from icalib.models.config import RankerConfig
from icalib.pipeline.gpu_rates import PEAKS, TabledGpus
from icalib.pipeline.plan import plan
from icalib.pipeline.rates import Rates


@pytest.fixture(scope="module")
def base(tiny_pools: Path, tmp_path_factory: pytest.TempPathFactory) -> RankerConfig:
    """A ranker of the width of BERT-base, with four layers."""
    folder = tmp_path_factory.mktemp("wide") / "bert"
    shape = {"hidden_size": 768, "num_hidden_layers": 4, "num_attention_heads": 12, "intermediate_size": 3072}
    return ranker_config(write_tiny_bert(folder, pool_texts(tiny_pools), **shape))


def rates(gpus: str, ranker: RankerConfig, similarity: str = "together", batch_size: int = 1024) -> Rates:
    ranker = ranker.model_copy(update={"similarity_start": similarity})
    return TabledGpus.parse(gpus).rates(ranker, batch_size=batch_size, max_tokens=8192)


def test_large_batches_take_their_flops(base: RankerConfig) -> None:
    found = rates("1xH200", base)
    flops = 4 * (2 * 128 * (4 * 768**2 + 2 * 768 * 3072) + 4 * 128**2 * 768)
    at = found.scoring_lengths.index(128.0)
    assert found.dropped[at] == found.passed[at] == pytest.approx(flops / (0.4 * PEAKS["H200"]))
    assert found.trained[at] == pytest.approx(3 * found.passed[at])
    both = rates("1xH200", base, "both")
    assert both.passed[at] == pytest.approx(2 * found.passed[at])
    assert both.dropped == found.dropped  # the bi-encoder reads a pair once


def test_frozen_layers_are_left_out_of_the_backward_pass(base: RankerConfig) -> None:
    encoder = base.encoder.model_copy(update={"frozen_layers": 3})
    found = rates("1xH200", base.model_copy(update={"encoder": encoder}))
    at = found.scoring_lengths.index(128.0)
    assert found.trained[at] == pytest.approx((1 + 2 / 4) * found.passed[at])


def test_encoders_that_are_no_transformers_are_refused(base: RankerConfig) -> None:
    other = base.model_copy(update={"encoder": IART.Config(backbone=base.encoder.backbone)})
    with pytest.raises(SettingError, match="--gpus computes the FLOPs of a transformer, and IART is none"):
        rates("1xH200", other)


def test_a_faster_gpu_is_faster_and_small_batches_take_the_time_of_their_launches(
    base: RankerConfig, tiny_bert: Path
) -> None:
    assert all(a < b for a, b in zip(rates("1xH200", base).passed, rates("1xA100", base).passed, strict=True))
    one, four, other = (
        rates(gpus, ranker_config(tiny_bert), batch_size=8).trained for gpus in ("1xL4", "4xL4", "1xH200")
    )
    assert one == other
    assert four == pytest.approx([4 * seconds for seconds in one])


@pytest.mark.parametrize("text", ["H200", "0xH200", "8xB1", "8 x H200", "", "-1xL4"])
def test_unknown_gpus_are_refused_with_those_that_are_known(text: str) -> None:
    with pytest.raises(SettingError, match=r"names no known GPUs: .*A10, A100, .*e\.g\. 8xH200"):
        TabledGpus.parse(text)


def test_a_plan_for_them_measures_nothing(tiny_pools: Path, tiny_bert: Path, tmp_path: Path) -> None:
    settings = small_settings("mc-dropout", tiny_pools, tiny_bert)
    made = plan([settings], run_context(tmp_path), gpus=TabledGpus.parse("8xh200"))
    assert (made.machines.num_workers, made.machines.num_scorers) == (8, 8)
    assert "not measured: FLOPs at 40% of the peak of a H200" in made.as_json()["basis"]
    assert made.memory == 0
    low, expected, high = made.seconds
    assert 0 < low < expected < high
    assert not list(tmp_path.rglob("rates.json"))
    assert not list(tmp_path.rglob("plan-*.json"))  # a run on these machines isn't compared with it
