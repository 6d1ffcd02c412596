"""Heads: logits, and optionally a posterior over logits, from the encoder's features."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from pydantic import Field
from torch import AcceleratorError, OutOfMemoryError, Tensor, is_grad_enabled, nn
from torch.distributed import DistError
from typing_extensions import override

from icalib.core.combination import PAIR_LOGITS, PAIR_PROBS, POSTERIOR, Capabilities
from icalib.core.component import Component, ComponentConfig, Settings, import_path, is_ours, missing
from icalib.core.errors import SettingError
from icalib.core.imports import failed
from icalib.core.text import short_repr

_MACHINES_WORDS = re.compile("Allocator|CUDA|CUBLAS|CUDNN|NCCL")
"""In messages of torch's errors of machines that have no type of their own."""

PairLoss = Callable[[Tensor, Tensor], Tensor]  # loss of each pair from its logit and label: [B], [B] → [B]
PosteriorTask = Callable[[], Any]
"""A part of a posterior's computation that any process can run: picklable, with a result that depends on it alone."""


class Support(Settings):
    """Training pairs that a posterior is computed from, drawn from different contexts if there are enough."""

    size: int = Field(default=256, ge=2)
    """S: number of pairs; fewer if training has too few of one class for `positive_share`."""
    positive_share: float = Field(default=0.5, gt=0, lt=1)
    """Fraction of right pairs; ½ is the balance of 1:1 training, 0.1 that of pools of ten."""


class AbstractHead(Component, nn.Module):
    """Base of heads, which turn features [B, D] into logits [B], in float32 for any precision of the encoder.

    `mean_B` is the logit of the mean function (zeros without one), to which the head adds a correction.
    """

    class Config(ComponentConfig):
        """Base of heads' settings."""

        joint_objective: ClassVar[bool] = False
        """Whether its objective is one of all pairs of a batch, `joint_loss`, rather than a sum over pairs."""

        @override
        def provides(self) -> Capabilities:
            return {PAIR_LOGITS, POSTERIOR} if self.has_posterior else {PAIR_LOGITS}

        @override
        def requires(self) -> Capabilities:
            return {PAIR_PROBS} if self.has_posterior else frozenset()

        @property
        def has_posterior(self) -> bool:
            """Whether the head is a `PosteriorHead`."""
            return issubclass(self.owner, PosteriorHead)

        @property
        def conditions_on_pairs(self) -> bool:
            """Whether the posterior is computed from training pairs after training, rather than during it."""
            return True

        @property
        def pairs_for_posterior(self) -> Support | None:
            """The support set that the posterior is computed from; None uses every training pair."""
            return None

    def forward(self, features_BD: Tensor, mean_B: Tensor) -> Tensor:
        """Return point logits [B]."""
        raise missing(self, "forward")

    def start_at_mean(self) -> None:
        """Change the initial weights so that the logits are those of the mean function until training corrects them."""

    def losses(self, features_BD: Tensor, mean_B: Tensor, labels_B: Tensor, loss: PairLoss) -> Tensor:
        """Return the training loss of each pair [B]."""
        return pair_losses(loss, self._logits(features_BD, mean_B), labels_B)

    def _logits(self, features_BD: Tensor, mean_B: Tensor) -> Tensor:
        what = f"the head `{import_path(type(self))}`"
        given = f"features of shape {list(features_BD.shape)}"
        found = _called(lambda: self(features_BD, mean_B), self, what, given)
        return _checked(found, len(mean_B), what, "Return one logit a pair, e.g. by squeeze(-1)")

    def represent(self, features_BD: Tensor, mean_B: Tensor) -> Tensor:
        """Return all that `joint_loss` reads of each pair, parameters of the head included; [B, R]."""
        raise NotImplementedError

    def joint_loss(self, representations_BR: Tensor, labels_B: Tensor, *, seed: int) -> Tensor:
        """Return the summed loss of a whole batch from its representations, which other workers may have computed."""
        raise NotImplementedError

    def touch(self, features_BD: Tensor, mean_B: Tensor) -> Tensor:
        """Return a scalar that depends on every parameter of the head, for batches without a loss."""
        return self._logits(features_BD, mean_B).sum()

    def start_epoch(self) -> None:
        """Prepare for an epoch of training."""

    def start_part(self, *, counted: bool) -> None:
        """Prepare for this process' part of an update; `counted` is false if its pairs are placeholders."""

    def end_update(self) -> None:
        """Finish an update after all its parts; every process calls it."""


def pair_losses(loss: PairLoss, logits_B: Tensor, labels_B: Tensor) -> Tensor:
    """Return the losses of pairs, or of pools if `loss` has `sizes_P`; a SettingError names what else it returned."""
    component: Any = getattr(loss, "component", loss)
    number, what = len(getattr(loss, "sizes_P", labels_B)), f"the loss `{import_path(type(component))}`"
    found = _called(lambda: loss(logits_B, labels_B), component, what, f"{len(labels_B)} logits and labels")
    return _checked(found, number, what, 'Leave it unreduced, e.g. by reduction="none"')


def _called(call: Callable[[], Any], component: Any, what: str, given: str) -> Any:
    """Return what a component returns; an error of one from outside is a SettingError with its file and line."""
    try:
        return call()
    except Exception as error:
        if is_ours(type(component)) or _is_of_machine(error):
            raise
        raise failed(f"{what} failed for {given}", error) from error


def _is_of_machine(error: Exception) -> bool:
    """Whether an error may be one of memory, a GPU that was lost, a disk or a worker, which no one corrects in code."""
    is_named = isinstance(error, MemoryError | OSError | OutOfMemoryError | AcceleratorError | DistError)
    return is_named or (type(error) is RuntimeError and _MACHINES_WORDS.search(str(error)) is not None)


def _checked(found: Any, number: int, what: str, cure: str) -> Tensor:
    if not isinstance(found, Tensor):
        returned = short_repr(found)
    elif found.shape != (number,):
        returned = f"a tensor of shape {list(found.shape)}"
    elif is_grad_enabled() and not found.requires_grad:
        returned = "a tensor without a gradient"
    else:
        return found
    expected = f"a tensor of shape [{number}] with a gradient"
    raise SettingError(f"{what} returned {returned}; expected {expected}. {cure}, and don't detach it.")


class LogitPosterior(NamedTuple):
    """Posterior of each pair's logit: an equal-weight mixture of S Gaussians; both fields have shape [S, B]."""

    mean_SB: Tensor
    var_SB: Tensor


class PosteriorHead(AbstractHead):
    """A head whose logits have a posterior, computed from training pairs once the weights are final.

    `forget` drops the posterior when they change, and a head without one refuses to predict by a PosteriorError.
    """

    num_jitters: int  # how many times since construction jitter had to be raised

    @override
    def touch(self, features_BD: Tensor, mean_B: Tensor) -> Tensor:
        if self.training:
            self.forget()
        return super().touch(features_BD, mean_B)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.forget()
        super()._load_from_state_dict(*args, **kwargs)

    def observe(self, features_BD: Tensor, mean_B: Tensor, labels_B: Tensor) -> None:
        """Observe some training pairs (in evaluation mode, without gradients)."""
        raise NotImplementedError

    def observations(self) -> dict[str, Tensor]:
        """Return what this process observed, to be joined with the other processes'; without a support set, sums."""
        raise NotImplementedError

    def condition(self, observations: Sequence[dict[str, Tensor]], *, seed: int) -> None:
        """Compute the posterior from the observations of all processes, in rank order, and drop them."""
        self.collect(observations)
        if tasks := self.posterior_tasks(seed=seed):
            self.take_results([task() for task in tasks])

    def collect(self, observations: Sequence[dict[str, Tensor]]) -> None:
        """Do the part of `condition` that `posterior_tasks` does not do, without drawing anything."""
        raise NotImplementedError

    def posterior_tasks(self, *, seed: int) -> Sequence[PosteriorTask]:
        """Return what is left after `collect` as tasks that can run anywhere; by default none."""
        return ()

    def take_results(self, results: Sequence[Any]) -> None:
        """Complete the posterior by the results of all `posterior_tasks`, in their order."""
        raise NotImplementedError

    def posterior(self, features_BD: Tensor, mean_B: Tensor) -> LogitPosterior:
        """Return the posterior of the logits."""
        raise NotImplementedError

    def posterior_state(self) -> dict[str, Tensor]:
        """Return the tensors of the posterior that a checkpoint stores."""
        raise NotImplementedError

    def load_posterior_state(self, state: dict[str, Tensor]) -> None:
        """Load the posterior of a checkpoint."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop posterior and observations because the weights have changed."""
        raise NotImplementedError
