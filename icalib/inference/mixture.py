"""Moments of logits that are mixtures of Gaussians."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from icalib.inference.mutual_information import Moments, RunningMoments, binary_entropy
from icalib.inference.quadrature import probability_moments


def mixture_moments(mean_SB: Tensor, var_SB: Tensor, *, num_nodes: int = 32) -> Moments:
    """Return the moments of equal-weight mixtures of S Gaussian logits, from one pass through the model.

    Variances follow the law of total variance; the mutual information H(E σ(f)) − E H(σ(f)) is that between a label
    and its logit, over the mixture and its Gaussians, in nats as for Monte Carlo passes (Houlsby et al. 2011, Eq. 2).
    """
    mean_SB, var_SB = mean_SB.double(), var_SB.double()
    prob = probability_moments(mean_SB, var_SB, num_nodes=num_nodes)
    prob_B = prob.mean.mean(0)
    information_B = binary_entropy(prob_B) - prob.entropy.mean(0)
    return Moments(
        prob_mean=prob_B,
        prob_var=prob.var.mean(0) + prob.mean.var(0, correction=0),
        logit_mean=mean_SB.mean(0),
        logit_var=var_SB.mean(0) + mean_SB.var(0, correction=0),
        mutual_information=information_B.clamp(min=0.0),  # rounding can leave −1e-17
        num_passes=1,
    )


def pass_moments(mean_SB: Tensor, var_SB: Tensor) -> Moments:
    """Return the moments of S passes, each of which may have a variance of its own (parts that are Gaussian)."""
    if not bool(var_SB.any()):
        moments = RunningMoments()
        for logits_B in mean_SB:
            moments.add(logits_B)
        return moments.result()
    found = replace(mixture_moments(mean_SB, var_SB), num_passes=len(mean_SB))
    if len(mean_SB) < 4:
        return found
    even, odd = (mixture_moments(mean_SB[half::2], var_SB[half::2]).mutual_information for half in (0, 1))
    return replace(found, half_information=(even, odd))
