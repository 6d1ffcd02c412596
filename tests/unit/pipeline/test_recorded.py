from __future__ import annotations

from pathlib import Path

import pytest
from helpers.runs import small_settings

from icalib.core.errors import RunFolderError
from icalib.pipeline.recorded import recorded_settings


def test_what_an_earlier_version_did_not_have_is_off(tiny_pools: Path, tiny_bert: Path) -> None:
    settings = small_settings("tsst", tiny_pools, tiny_bert)
    now = {"version": 2, **settings.model_dump(mode="json")}
    assert recorded_settings(Path("config.yaml"), now) == settings
    del now["settings"]["bi_encoder_training"]
    for training in ("teacher", "student"):
        del now["settings"]["regime"][training]["keep_start"]
    earlier = recorded_settings(Path("config.yaml"), now)
    assert earlier.settings.bi_encoder_training is None
    assert not any(training.keep_start for training in earlier.settings.regime.trainings())
    with pytest.raises(RunFolderError, match=r"config\.yaml: .*Correct that file"):
        recorded_settings(Path("config.yaml"), {**now, "settings": [1]})
