"""An encoder that predicts intents: a bi-encoder's, trained on the labelled utterances, from regressions on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from typing_extensions import override

from icalib.core.files import atomic_write
from icalib.core.job import Artifact, ByContent
from icalib.core.seeding import child_seed
from icalib.data.encoding import Budget, Encoded, Ids, Layout, TokenPool, TokenStore
from icalib.data.folds import Fold, fold_of
from icalib.data.selection import Selection
from icalib.encoders.backbone import backbone_digest
from icalib.encoders.transfer import to_device
from icalib.encoders.transformer import Batch
from icalib.metrics.calibration import nll
from icalib.metrics.catalogue import metric_tag
from icalib.metrics.classification import label_counts, micro_macro_f1
from icalib.models.bi_encoder import BiEncoder, load_bi_encoder, unit_means
from icalib.models.checkpoint import CHECKPOINT_VERSION
from icalib.models.precision import Precision
from icalib.models.ranker import make_batch
from icalib.parts.intent_model import Array, IntentModel, IntentPredictor, Utterances, fit_intents, vectors_of
from icalib.training.examples import batched, training_rows
from icalib.training.job import Training, TrainingJob
from icalib.training.settings import TrainingSettings
from icalib.training.validation import MACRO, MICRO, validation_rows

_HEADS = "heads.safetensors"
_UNKNOWN_BEFORE = 0.2  # how often the intents before are hidden in training; predicted ones are not always right


class IntentEncoder(BiEncoder):
    """A bi-encoder with the regressions of an `IntentModel` as heads on an utterance's vector."""

    def __init__(self, backbone: str, budget: Budget, num_intents: int, *, dropout: float | None = None) -> None:
        super().__init__(backbone, budget, dropout=dropout)
        width, k = self.encoder.width, num_intents
        self.heads = nn.ModuleList(nn.Linear(size, k) for size in (width + k + 1, width, width + k))

    def begin(self, model: IntentModel) -> None:
        """Copy the weights of regressions."""
        for head, weight_DK in zip(self.heads, model, strict=True):
            weight = torch.from_numpy(weight_DK)
            head.load_state_dict({"weight": weight[:-1].T, "bias": weight[-1]})

    @property
    def model(self) -> IntentModel:
        """The heads as regressions."""
        with self.whole(self.heads.parameters()):
            return IntentModel(*(_weights(head.state_dict()) for head in self.heads))

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, texts: Batch, before: Tensor, own_NK: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the logits of utterances' intents given those before, without these, and of what follows; [N, K].

        Args:
            before: intents before, and whether there is no utterance before; [N, K + 1].
            own_NK: the utterances' own intents.
        """
        vectors_ND = unit_means(self.encoder, texts)
        inputs = (torch.cat([vectors_ND, before], 1), vectors_ND, torch.cat([vectors_ND, own_NK], 1))
        with torch.autocast(vectors_ND.device.type, enabled=False):
            one, two, three = (head(x) for head, x in zip(self.heads, inputs, strict=True))
        return one, two, three

    @override
    def save(self, folder: Path, state: dict[str, Tensor]) -> None:
        super().save(folder, {name: value for name, value in state.items() if name.startswith("encoder.")})
        heads = {name: value.detach().cpu().contiguous() for name, value in state.items() if name.startswith("heads.")}
        with atomic_write(folder / _HEADS) as temporary:
            save_file(heads, temporary)


def _weights(state: dict[str, Tensor]) -> Array:
    return torch.cat([state["weight"].T, state["bias"][None]]).detach().float().cpu().numpy()


def load_predictor(folder: Path, precision: Precision, device: torch.device) -> IntentPredictor:
    """Load a checkpoint of an `IntentEncoder` to predict with."""
    encoder, heads = load_bi_encoder(folder, precision, device), load_file(folder / _HEADS)
    parts = [{name: heads[f"heads.{index}.{name}"] for name in ("weight", "bias")} for index in range(3)]
    return IntentPredictor(encoder, IntentModel(*map(_weights, parts)), precision)


class _Example(NamedTuple):
    """An utterance with its intents, those before it, and those of what follows; NaN: none, or unknown."""

    ids: Ids
    before: Array
    own_K: Array
    next_K: Array

    @property
    def length(self) -> int:
        return len(self.ids)


class IntentCurriculum:
    """Batches of the utterances of some pools that have intents, with three cross-entropies each."""

    def __init__(self, pools: Sequence[TokenPool], layout: Layout, job: IntentEncoderJob) -> None:
        self._layout, self._job = layout, job
        self._examples = [example for pool in pools for example in _examples(pool, layout, job.num_intents)]

    def batches(self, epoch: int) -> list[list[_Example]]:
        """Return all batches of an epoch, in some of whose examples the intents before are hidden."""
        rng = np.random.default_rng(child_seed(self._job.seed, "intents", epoch))
        hidden = rng.random(len(self._examples)) < _UNKNOWN_BEFORE
        each = zip(self._examples, hidden.tolist(), strict=True)
        examples = [one._replace(before=_hidden(one.before)) if hide else one for one, hide in each]
        return batched(examples, self._job.training, rng)

    def losses(
        self, forward: Callable[..., Any], examples: Sequence[_Example], device: torch.device
    ) -> tuple[str, Tensor]:
        """Return the mean over intents of the binary cross-entropies, summed over heads and utterances."""
        encoded: list[Encoded] = [(one.ids, len(one.ids)) for one in examples]
        before, own_NK, next_NK = (
            to_device(torch.from_numpy(np.stack(values)), device)
            for values in zip(*((one.before, one.own_K, one.next_K) for one in examples), strict=True)
        )
        logits = forward(make_batch(encoded, self._layout, device), before, own_NK)
        follows_N1 = ~next_NK.isnan().any(1, keepdim=True)
        targets = (own_NK, own_NK, next_NK.nan_to_num())
        weights = (1.0, 1.0, follows_N1.float())
        terms = [
            (weight * binary_cross_entropy_with_logits(logit.float(), target, reduction="none")).mean(1).sum()
            for logit, target, weight in zip(logits, targets, weights, strict=True)
        ]
        return "utterance_intents", sum(terms[1:], terms[0])


def _hidden(before: Array) -> Array:
    """Return `before` without the intents; whether an utterance is the first is known in predictions, too."""
    return np.append(np.zeros_like(before[:-1]), before[-1:])


def _examples(pool: TokenPool, layout: Layout, num_intents: int) -> list[_Example]:
    hot_TK = np.zeros((len(pool.context), num_intents), np.float32)
    for turn, names in enumerate(pool.intents):
        hot_TK[turn, list(names)] = 1.0
    unknown_K = np.full(num_intents, np.nan, np.float32)
    found: list[_Example] = []
    for turn, ids in enumerate(pool.context):
        if not hot_TK[turn].any():  # nothing says whether it was annotated
            continue
        text = layout.single(ids)
        before = np.append(hot_TK[turn - 1] if turn else np.zeros(num_intents), turn == 0).astype(np.float32)
        follows = turn + 1 < len(hot_TK) and bool(hot_TK[turn + 1].any())
        found.append(_Example(text, before, hot_TK[turn], hot_TK[turn + 1] if follows else unknown_K))
    return found


class IntentValidation:
    """NLL and F1 of the intents of validation pools, predicted turn by turn."""

    def __init__(self, pools: Sequence[TokenPool], job: IntentEncoderJob) -> None:
        self._pools, self._job = pools, job

    def __call__(self, model: IntentEncoder, rank: int, world_size: int) -> tuple[Tensor, Tensor]:
        """Return probabilities and intents of the utterances of every world-size-th pool; [N, K] each."""
        pools = self._pools[rank::world_size]
        if not pools:
            empty = torch.zeros(0, self._job.num_intents)
            return empty, empty
        texts = (ids for pool in pools for ids in pool.context)
        vectors = vectors_of(model, texts, self._job.training.precision)
        utterances = Utterances.of(pools, vectors, self._job.num_intents)
        known = utterances.intents_NK.any(1)
        probs_NK = utterances.predicted_by(model.model.utterance_DK)
        return torch.from_numpy(probs_NK[known]), torch.from_numpy(utterances.intents_NK[known])

    def metrics(self, results: Sequence[tuple[Tensor, Tensor]]) -> dict[str, float]:
        """Compute NLL per utterance and intent, and F1 at probability ½."""
        probs_NK, gold_NK = (torch.cat(values).double().numpy() for values in zip(*results, strict=True))
        micro, macro = micro_macro_f1(label_counts(probs_NK > 0.5, gold_NK > 0))
        return {metric_tag("NLL"): nll(probs_NK.ravel(), gold_NK.ravel().astype(np.int64)), MICRO: micro, MACRO: macro}


class IntentEncoderJob(TrainingJob):
    """Trains an encoder to predict intents."""

    version: ClassVar[int] = CHECKPOINT_VERSION + 4  # word embeddings of tokens that occur

    backbone: Annotated[str, ByContent(backbone_digest)]
    budget: Budget
    dropout: float | None = None
    """Of hidden states and attention; None: the backbone's own."""
    training: TrainingSettings
    ridge: float
    """Ridge of the regressions that the heads begin with."""
    num_folds: int
    """Folds by which these regressions get the intents before out of fold, as they will be predicted."""
    selection: Selection
    num_intents: int
    train_tokens: Artifact
    validation_tokens: Artifact
    start: Artifact | None = None
    """Checkpoint of a bi-encoder; None starts from the backbone."""
    left_out: Fold | None = None
    """Fold of the labelled pools that isn't trained on."""
    seed: int

    @override
    def build(self, device: torch.device) -> Training:
        encoder = IntentEncoder(self.backbone, self.budget, self.num_intents, dropout=self.dropout)
        if self.start is not None:
            encoder.start(self.start.path)
        store = TokenStore(self.train_tokens.path)
        rows = training_rows(store, self.selection, self.left_out)
        pools = list(store.pools(rows))
        fold_P = fold_of(store, rows, self.num_folds)
        encoder.begin(self._regressions(encoder.to(device), pools, fold_P))
        held_out = TokenStore(self.validation_tokens.path)
        validation_pools = list(held_out.pools(validation_rows(held_out, self.selection)))
        has_intents = any(len(names) for pool in validation_pools for names in pool.intents)
        curriculum = IntentCurriculum(pools, encoder.layout, self)
        token_ids = encoder.layout.token_ids(store.token_ids(rows))
        if not has_intents:
            return Training(encoder, curriculum, token_ids=token_ids)
        validation = IntentValidation(validation_pools, self)
        return Training(encoder, curriculum, validation, start_ranks=True, token_ids=token_ids)

    def _regressions(
        self, encoder: IntentEncoder, pools: Sequence[TokenPool], fold_P: npt.NDArray[np.int64]
    ) -> IntentModel:
        texts = (ids for pool in pools for ids in pool.context)
        vectors = vectors_of(encoder, texts, "fp32")
        utterances = Utterances.of(pools, vectors, self.num_intents)
        return fit_intents(utterances, fold_P, self.num_folds, self.ridge)[0]
