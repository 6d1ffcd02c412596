"""Every negative sampler, those of installed packages too."""

from __future__ import annotations

import pytest
from helpers.sampler_contract import SamplerContract

from icalib.data.negatives import NEGATIVE_SAMPLERS


@pytest.fixture(params=NEGATIVE_SAMPLERS.names())
def sampler(request: pytest.FixtureRequest) -> str:
    return request.param


class TestSamplers(SamplerContract):
    pass
