"""Batches of concurrent callers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from icalib.serving.batching import Batcher


def test_concurrent_items_are_computed_together_and_return_to_their_callers() -> None:
    sizes: list[int] = []

    def double(items: Sequence[int]) -> list[int]:
        sizes.append(len(items))
        return [2 * item for item in items]

    async def main() -> list[int]:
        batcher = Batcher(double, max_size=8, wait_s=0.05)
        results = await asyncio.gather(*map(batcher, range(20)))
        await batcher.close()
        return results

    assert asyncio.run(main()) == [2 * item for item in range(20)]
    assert max(sizes) == 8
    assert sum(sizes) == 20


def test_an_error_reaches_its_callers_and_the_next_batch_is_computed() -> None:
    def invert(items: Sequence[int]) -> list[float]:
        return [1 / item for item in items]

    async def main() -> None:
        batcher = Batcher(invert, max_size=1)
        with pytest.raises(ZeroDivisionError):
            await batcher(0)
        assert await batcher(4) == 0.25
        await batcher.close()

    asyncio.run(main())


def test_an_item_whose_caller_has_gone_is_not_computed() -> None:
    computed: list[int] = []

    def slow(items: Sequence[int]) -> list[int]:
        time.sleep(0.05)
        computed.extend(items)
        return list(items)

    async def main() -> None:
        batcher = Batcher(slow, max_size=1)
        first = asyncio.create_task(batcher(1))
        await asyncio.sleep(0.01)
        gone = asyncio.create_task(batcher(2))
        await asyncio.sleep(0.01)
        gone.cancel()
        await first
        assert await batcher(3) == 3
        await batcher.close()

    asyncio.run(main())
    assert computed == [1, 3]
