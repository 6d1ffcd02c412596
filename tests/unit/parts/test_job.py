from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.score_jobs import score_job

from icalib.core.job import keep_nothing
from icalib.parts.job import _loaded_part

CPU = torch.device("cpu")


def test_a_retry_in_the_same_process_scores_with_the_lower_limit_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    def limit_of(*given: Any) -> list[Any]:
        return [one for one in given if isinstance(one, int)]

    monkeypatch.setattr("icalib.parts.job.load_part", limit_of)
    keep_nothing()
    jobs = [score_job(Path("tokens"), Path("model"), max_tokens_per_batch=limit) for limit in (1024, 1024, 512)]
    first, same, retried = (_loaded_part(job, CPU) for job in jobs)
    assert first is same  # the shards of a job share a model
    assert (first, retried) == ([1024], [512])
