"""Heads: from the encoder's features to logits, and to a posterior over logits where a head has one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from pydantic import Field
from torch import Tensor, nn

from icalib.core.component import Component, ComponentConfig, Settings

PairLoss = Callable[[Tensor, Tensor], Tensor]
"""Loss of each pair from its logit and label: [B], [B] → [B]."""


class Support(Settings):
    """Training pairs that a posterior is computed from."""

    size: int = Field(default=256, ge=2)
    """S: how many pairs, or fewer where training has too few of one class for `positive_share`."""
    choice: Literal["balanced_random", "per_class_kmeans", "last_batch"] = "balanced_random"
    """`balanced_random`: drawn at random, each from another context where there are enough. `per_class_kmeans`: the
    real pair nearest to each k-means centroid, class by class. `last_batch`: the last pairs of an epoch."""
    positive_share: float = Field(default=0.5, gt=0, lt=1)
    """Share of right pairs; ½ is the balance of 1:1 training, 0.1 that of pools of ten."""


class AbstractHead(Component, nn.Module):
    """Turns features [B, D] into logits [B]; computes in float32 whatever the encoder's precision.

    `mean_B` is the logit of the mean function (zeros where there is none): what the head corrects.
    """

    class Config(ComponentConfig):
        """Base of heads' settings."""

        own_objective: ClassVar[bool] = False
        """Whether the head brings its own training objective, so that no loss goes with it."""

        @property
        def has_posterior(self) -> bool:
            """Whether it is a PosteriorHead."""
            return issubclass(self.owner, PosteriorHead)

        @property
        def looks_at_pairs(self) -> bool:
            """Whether its posterior is computed from pairs that it is shown after training, not from what it saw in
            training."""
            return True

        @property
        def pairs_for_posterior(self) -> Support | None:
            """The support set that the posterior is computed from; None takes every training pair."""
            return None

    def forward(self, features_BD: Tensor, mean_B: Tensor) -> Tensor:
        """Point logits [B]."""
        raise NotImplementedError

    def losses(self, features_BD: Tensor, mean_B: Tensor, labels_B: Tensor, loss: PairLoss) -> Tensor:
        """Training loss of each pair [B]."""
        return loss(self(features_BD, mean_B), labels_B)

    def touch(self, features_BD: Tensor, mean_B: Tensor) -> Tensor:
        """A number in which every parameter of the head takes part."""
        return self(features_BD, mean_B).sum()

    def start_epoch(self) -> None:
        """An epoch of training begins."""

    def start_part(self, *, counted: bool) -> None:
        """This process' part of an update begins; not `counted` if its pairs only stand in for none."""


class LogitPosterior(NamedTuple):
    """Posterior of each pair's logit: an even mixture of S Gaussians; both fields have shape [S, B]."""

    mean_SB: Tensor
    var_SB: Tensor


class PosteriorTask(Protocol):
    """A part of a posterior's computation that any process can do; picklable."""

    def run(self) -> Any:
        """Do it; the result depends on the task alone."""
        ...


class PosteriorHead(AbstractHead):
    """A head whose logits have a posterior, computed from training pairs once the weights are final.

    The weights and the posterior must be of one time: `forget` drops a posterior whose weights have moved, and a head
    without one refuses to predict.
    """

    num_jitters: int
    """How many times since construction a matrix needed more jitter than planned."""

    def touch(self, features_BD: Tensor, mean_B: Tensor) -> Tensor:
        """A number in which every parameter of the head takes part; in training it makes the posterior stale."""
        if self.training:
            self.forget()
        return super().touch(features_BD, mean_B)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.forget()
        super()._load_from_state_dict(*args, **kwargs)

    def observe(self, features_BD: Tensor, mean_B: Tensor, labels_B: Tensor) -> None:
        """Take in some training pairs (in evaluation mode, no gradients)."""
        raise NotImplementedError

    def observations(self) -> dict[str, Tensor]:
        """What this process has taken in, for the others to join."""
        raise NotImplementedError

    def condition(self, shares: Sequence[dict[str, Tensor]], *, seed: int) -> None:
        """Compute the posterior from what all processes observed, in rank order; observations are dropped."""
        raise NotImplementedError

    def collect(self, shares: Sequence[dict[str, Tensor]], *, seed: int) -> None:
        """Do the part of `condition` that `posterior_tasks` does not do; by default all of it."""
        self.condition(shares, seed=seed)

    def posterior_tasks(self, *, seed: int) -> Sequence[PosteriorTask]:
        """What is left after `collect`, as tasks that can run anywhere; by default nothing."""
        return ()

    def take_results(self, results: Sequence[Any]) -> None:
        """Complete the posterior by the results of all `posterior_tasks`, in their order."""
        raise NotImplementedError

    def posterior(self, features_BD: Tensor, mean_B: Tensor) -> LogitPosterior:
        """The logits' posterior.

        Raises:
            PosteriorError: there is none for the weights as they are.
        """
        raise NotImplementedError

    def posterior_state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps of the posterior, as named tensors.

        Raises:
            PosteriorError: there is none for the weights as they are.
        """
        raise NotImplementedError

    def load_posterior_state(self, state: dict[str, Tensor]) -> None:
        """Take a posterior from a checkpoint."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop posterior and observations: the weights have changed."""
        raise NotImplementedError
