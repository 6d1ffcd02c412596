"""Batches of concurrent callers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
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


def test_a_pool_whose_caller_has_gone_is_not_scored() -> None:
    scored: list[Any] = []

    def slow(pools: Sequence[Any]) -> list[Any]:
        time.sleep(0.05)
        scored.extend(pools)
        return list(pools)

    async def main() -> None:
        batcher: Any = Batcher(slow, 1)
        first = asyncio.create_task(batcher(1))
        await asyncio.sleep(0.01)
        gone = asyncio.create_task(batcher(2))
        await asyncio.sleep(0.01)
        gone.cancel()
        await first
        assert await batcher(3) == 3

    asyncio.run(main())
    assert scored == [1, 3]
