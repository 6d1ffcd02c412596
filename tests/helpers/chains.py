"""Gibbs chains in one process."""

from __future__ import annotations

from typing import Any

from icalib.inference.gibbs import ChainProblem, Chains, join_blocks, num_blocks, sample_block


def sample_chains(problem: ChainProblem, *, num_chains: int, **settings: Any) -> Chains:
    blocks = range(num_blocks(num_chains))
    return join_blocks([sample_block(problem, block, num_chains=num_chains, **settings) for block in blocks])
