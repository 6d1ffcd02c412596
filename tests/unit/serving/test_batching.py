"""Batches of concurrent callers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from icalib.serving.served_run import Batcher


def test_an_error_reaches_its_callers_and_the_next_batch_is_scored() -> None:
    async def main() -> None:
        batcher: Any = Batcher(lambda pools: [1 / pool for pool in pools], 1)
        with pytest.raises(ZeroDivisionError):
            await batcher(0)
        assert await batcher(4) == 0.25

    asyncio.run(main())
