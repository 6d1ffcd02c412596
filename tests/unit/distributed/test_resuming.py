"""Which checkpoints DeepSpeed may resume from; no Ray is started."""

from __future__ import annotations

import pytest

from icalib.core.errors import SettingError
from icalib.distributed.engine import DeepSpeedEngine
from icalib.training.settings import TrainingSettings


@pytest.mark.parametrize(
    ("made_by", "now", "fits"),
    [
        ((2, 0), (1, 0), True),
        ((2, 2), (2, 2), True),
        ((2, 2), (1, 2), False),
        ((2, 3), (1, 3), False),
        ((1, 1), (1, 0), False),
    ],
)
def test_resuming_on_other_workers_is_refused_where_deepspeed_would_go_wrong(
    made_by: tuple[int, int], now: tuple[int, int], fits: bool
) -> None:
    engine = object.__new__(DeepSpeedEngine)
    engine.world_size = now[0]
    engine._settings = TrainingSettings(zero_stage=now[1])
    facts = {"world_size": made_by[0], "zero_stage": made_by[1]}
    if fits:
        engine._check_fits(facts)
    else:
        with pytest.raises(SettingError, match=f"checkpointed by {made_by[0]} workers"):
            engine._check_fits(facts)
