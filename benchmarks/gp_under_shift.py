"""Does a Gaussian process on a bi-encoder's vectors know other data when it sees them? Beside cheaper calibrations.

    python benchmarks/gp_under_shift.py RUN POOLS OTHER_POOLS …   # RUN has a similarity part and was trained on POOLS

The process is a residual of Platt scaling on u ⊙ a, |u − a| and the cosine, with an RBF kernel whose amplitude and
length-scale are chosen by the evidence (Laplace), conditioned in closed form on validation pools.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.special import expit, log_expit

from icalib.calibration.calibrator import PoolSoftmax, fit_affine
from icalib.calibration.fitted import AffineMap
from icalib.data.pools import as_pools, iter_pools
from icalib.data.schema import Split
from icalib.encoders.backbone import Tokenizer
from icalib.inference.moments import mean_field
from icalib.metrics.calibration import ece, nll
from icalib.metrics.pairs import PoolScores
from icalib.metrics.ranking import mean_defined, recall_at_k
from icalib.models.bi_encoder import load_bi_encoder, text_vectors
from icalib.models.checkpoint import load_ranker_config
from icalib.scoring.untrained import token_pool

NUM_POOLS = 300
_CPU = torch.device("cpu")
Array = np.ndarray[Any, np.dtype[np.float64]]


class Pairs(NamedTuple):
    """Cosines, features and labels of the pairs of some pools."""

    cosine_N: Array
    features_ND: Array
    label_N: Any
    sizes_P: Any


def main() -> None:
    """Fit on validation, and print R@1, ECE and NLL on test and on the other pools."""
    run, own, *others = map(Path, sys.argv[1:])
    folder = run / "checkpoints" / "final" / "similarity"
    known = pairs_of(folder, own, "validation")
    platt = fit_affine(known.cosine_N, known.label_N)
    softmax = PoolSoftmax.Config().build().fit(known.cosine_N, known.label_N, sizes_P=known.sizes_P)
    process = Process.fit(known, platt)
    rows: dict[str, Callable[[Pairs], Array]] = {
        "Platt": lambda pairs: platt.apply(pairs.cosine_N),
        "Gaussian process": lambda pairs: process.probs(pairs, platt, has_mean=True),
        "its variance alone": lambda pairs: process.probs(pairs, platt, has_mean=False),
        "softmax over the pool": lambda pairs: softmax.apply(pairs.cosine_N, pairs.sizes_P),
    }
    for pools in (own, *others):
        pairs = pairs_of(folder, pools, "test")
        print(f"\n{pools.name}, {len(pairs.sizes_P)} test pools; variance {process.moments(pairs)[1].mean():.3f}")
        for name, probs_of in rows.items():
            prob_N = probs_of(pairs)
            ids = tuple(map(str, range(len(pairs.sizes_P))))
            scores = PoolScores(ids, prob_N, prob_N, pairs.label_N, np.cumsum([0, *pairs.sizes_P]))
            recall, error = mean_defined(recall_at_k(scores, 1)), ece(prob_N, pairs.label_N)
            print(f"  {name:<24}R@1 {recall:.3f}  ECE {error:.3f}  NLL {nll(prob_N, pairs.label_N):.3f}")


def pairs_of(folder: Path, pools: Path, split: Split) -> Pairs:
    """Return the pairs of the first pools of a split, read by a bi-encoder's checkpoint."""
    config = load_ranker_config(folder).encoder
    found = list(islice((pool for batch in iter_pools(pools, split) for pool in as_pools(batch)), NUM_POOLS))
    tokenizer = Tokenizer(config.backbone)
    tokens = [token_pool(pool, tokenizer, config.budget) for pool in found]
    model = load_bi_encoder(folder, "fp32", _CPU)
    contexts = [model.layout.context_ids(pool.context, None) for pool in tokens]
    sizes_P = np.array([len(pool.candidates) for pool in tokens])
    u_ND = np.repeat(text_vectors(model.encoder, model.layout, contexts, _CPU), sizes_P, axis=0).astype(np.float64)
    candidates = [ids for pool in tokens for ids in pool.candidates]
    a_ND = text_vectors(model.encoder, model.layout, candidates, _CPU).astype(np.float64)
    cosine_N = np.einsum("nd,nd->n", u_ND, a_ND)
    features_ND = np.concatenate([np.sqrt(u_ND.shape[1]) * u_ND * a_ND, np.abs(u_ND - a_ND), cosine_N[:, None]], 1)
    return Pairs(cosine_N, features_ND, np.concatenate([pool.is_right() for pool in tokens]).astype(np.int64), sizes_P)


class Process(NamedTuple):
    """A Gaussian process conditioned on pairs by Laplace's approximation (Rasmussen and Williams 2006, ch. 3.4)."""

    known_ND: Array
    amplitude: float
    scale: float
    dual_N: Array  # K⁻¹ f
    factor_NN: Array  # Cholesky factor of I + W½ K W½
    root_N: Array  # W½
    evidence: float

    @classmethod
    def fit(cls, known: Pairs, platt: AffineMap) -> Process:
        """Choose amplitude and length-scale on a grid by the evidence."""
        squares_NN = _squares(known.features_ND, known.features_ND)
        grid = product((0.1, 0.3, 1, 3, 10), float(np.median(squares_NN)) * np.array([0.25, 0.5, 1, 2]))
        return max((cls._of(known, squares_NN, platt, *at) for at in grid), key=lambda process: process.evidence)

    @classmethod
    def _of(cls, known: Pairs, squares_NN: Array, platt: AffineMap, amplitude: float, scale: float) -> Process:
        kernel_NN = amplitude * np.exp(-squares_NN / (2 * scale))
        offset_N = platt.slope * known.cosine_N + platt.offset
        f_N = np.zeros(len(known.label_N))
        while True:  # Newton's method on a concave function
            prob_N = expit(f_N + offset_N)
            root_N = np.sqrt(np.maximum(prob_N * (1 - prob_N), 1e-9))
            factor_NN = cholesky(np.eye(len(f_N)) + root_N[:, None] * kernel_NN * root_N, lower=True)
            b_N = root_N**2 * f_N + known.label_N - prob_N
            dual_N = b_N - root_N * cho_solve((factor_NN, True), root_N * (kernel_NN @ b_N))
            f_N, before_N = kernel_NN @ dual_N, f_N
            if np.abs(f_N - before_N).max() < 1e-4:
                break
        signs_N = 2 * known.label_N - 1
        likelihood = log_expit(signs_N * (f_N + offset_N)).sum()
        evidence = float(likelihood - dual_N @ f_N / 2 - np.log(np.diag(factor_NN)).sum())
        return cls(known.features_ND, amplitude, scale, dual_N, factor_NN, root_N, evidence)

    def moments(self, pairs: Pairs) -> tuple[Array, Array]:
        """Return the mean and the variance of the process at some pairs, [N] each."""
        kernel_NM = self.amplitude * np.exp(-_squares(pairs.features_ND, self.known_ND) / (2 * self.scale))
        solved_MN = solve_triangular(self.factor_NN, self.root_N[:, None] * kernel_NM.T, lower=True)
        return kernel_NM @ self.dual_N, np.maximum(self.amplitude - (solved_MN**2).sum(0), 0.0)

    def probs(self, pairs: Pairs, platt: AffineMap, *, has_mean: bool) -> Array:
        """Return mean-field probabilities [N]."""
        mean_N, var_N = self.moments(pairs)
        logit_N = platt.slope * pairs.cosine_N + platt.offset + has_mean * mean_N
        return mean_field(torch.from_numpy(logit_N), torch.from_numpy(var_N)).numpy()


def _squares(left_ND: Array, right_MD: Array) -> Array:
    norms_NM = (left_ND**2).sum(1)[:, None] + (right_MD**2).sum(1)
    return np.maximum(norms_NM - 2 * left_ND @ right_MD.T, 0.0)


if __name__ == "__main__":
    main()
