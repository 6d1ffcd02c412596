"""Ray Train's controllers, in actors that are kept from training to training.

Ray Train starts an actor for each training's controller, and its process takes seconds to import Ray Train.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, final


class _Host:
    """An actor in which controllers run, one at a time."""

    def run(self, parts: Mapping[str, Any]) -> Any:
        """Run a controller to the end of its training; return Ray Train's result, which has the error if it failed."""
        from ray.train.v2._internal.execution.controller import TrainController

        controller = TrainController(**parts)
        asyncio.run(controller.run())
        return controller.get_result()


@final
class Controllers:
    """The actors of a process, as many as it runs trainings at a time; they end with it."""

    def __init__(self) -> None:
        self._idle: list[Any] = []

    def run(self, parts: Mapping[str, Any]) -> Any:
        """Run the controller that is made of `parts`, in an idle actor or a new one.

        Raises:
            RayError: the actor died.
        """
        import ray

        host = None
        with suppress(IndexError):  # other threads may take the last one
            host = self._idle.pop()
        host = host or _start()
        result = ray.get(host.run.remote(parts))
        self._idle.append(host)
        return result


def _start() -> Any:
    """Start an actor on this node, with the environment that Ray Train gives its controllers."""
    import ray
    from ray.train.v2._internal.constants import get_env_vars_to_propagate
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = ray.get_runtime_context().get_node_id()
    return (
        ray.remote(_Host)
        .options(
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False),
            runtime_env={"env_vars": {"RAY_WARN_BLOCKING_GET_INSIDE_ASYNC": "0", **get_env_vars_to_propagate()}},
        )
        .remote()
    )
