"""Joining concurrent requests into batches that one thread scores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Batcher(Generic[T, R]):
    """Collects what concurrent callers ask for, and computes it in one thread, so that requests never block.

    Args:
        compute: takes the items of a batch and returns their results in order.
        max_size: maximum number of items in a batch.
        wait_s: for how long an incomplete batch waits for more.
    """

    def __init__(self, compute: Callable[[Sequence[T]], Sequence[R]], *, max_size: int, wait_s: float = 0.002) -> None:
        self._compute, self._max_size, self._wait_s = compute, max_size, wait_s
        self._queue: asyncio.Queue[tuple[T, asyncio.Future[R]]] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="icalib-scoring")
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: T) -> R:
        """Return the result of an item.

        Raises:
            Exception: what `compute` raised for the item's batch.
        """
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        await self._queue.put((item, future))
        return await future

    async def close(self) -> None:
        """Stop; nothing may be pending."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._thread.shutdown()

    async def _run(self) -> None:
        while True:
            batch = await self._next_batch()
            waiting = [(item, future) for item, future in batch if not future.done()]  # the others' callers have gone
            if not waiting:
                continue
            try:
                items = [item for item, _ in waiting]
                results = await asyncio.get_running_loop().run_in_executor(self._thread, self._compute, items)
            except Exception as error:
                for _, future in waiting:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), result in zip(waiting, results, strict=True):
                if not future.done():
                    future.set_result(result)

    async def _next_batch(self) -> list[tuple[T, asyncio.Future[R]]]:
        batch = [await self._queue.get()]
        with suppress(TimeoutError):
            async with asyncio.timeout(self._wait_s):
                while len(batch) < self._max_size:
                    batch.append(await self._queue.get())
        return batch
