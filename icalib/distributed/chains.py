"""The Gibbs chains of a posterior as parallel Ray tasks: once a checkpoint, then every scorer reads them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from icalib.core.errors import IcalibError
from icalib.core.seeding import child_seed
from icalib.distributed.session import Resources
from icalib.heads.polya_gamma import PolyaGammaHead
from icalib.training.job import TrainJob

if TYPE_CHECKING:
    from torch import Tensor

    from icalib.inference.gibbs import Chains


def complete_posterior(job: TrainJob, checkpoint: Path, resources: Resources) -> int:
    """Run the chains over the support set that training left in a checkpoint, block by block, and keep them there.

    A block's chains depend on (checkpoint, seed, block) alone: not on which worker ran it, nor on how many there are.

    Returns:
        How many times a matrix needed more jitter than planned.

    Raises:
        IcalibError: a block failed three times.
    """
    import ray
    from ray.exceptions import RayError

    from icalib.inference.gibbs import join_blocks, num_blocks
    from icalib.models.checkpoint import save_posterior
    from icalib.models.ranker import load_ranker

    head = load_ranker(checkpoint).answer_head
    assert isinstance(head, PolyaGammaHead)
    task = ray.remote(
        num_cpus=0 if resources.use_gpu else 1,
        num_gpus=1 if resources.use_gpu else 0,
        max_retries=3,
        scheduling_strategy="DEFAULT",  # anywhere: a sweep's trial holds a placement without room for tasks
    )(_run_block)
    problem = ray.put(head.posterior_state())
    config, seed = head.config, child_seed(job.seed, "posterior")
    try:
        blocks = ray.get(
            [
                task.remote(problem, block, config.num_chains, config.prediction_steps, seed)
                for block in range(num_blocks(config.num_chains))
            ]
        )
    except RayError as error:
        raise IcalibError(
            f"the Gibbs chains over the support set in {checkpoint} failed after 3 retries: {error}. The same command "
            "goes on from the trained weights."
        ) from error
    head.take_chains(join_blocks(blocks))
    save_posterior(checkpoint, head.posterior_state())
    return head.num_jitters


def _run_block(state: dict[str, Tensor], block: int, num_chains: int, num_steps: int, seed: int) -> Chains:
    import torch

    from icalib.heads.polya_gamma import chain_problem
    from icalib.inference.gibbs import Chains, sample_block

    torch.set_num_threads(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    there = {name: tensor.to(device) for name, tensor in state.items()}
    chains = sample_block(chain_problem(there), block, num_chains=num_chains, num_steps=num_steps, seed=seed)
    return Chains(chains.omega_SN.cpu(), chains.num_jitters)
