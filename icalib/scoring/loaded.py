"""The models of a finished run, loaded into this process to score pools without Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import torch

from icalib.data.encoding import Layout, TokenStore, write_tokens
from icalib.data.schema import Pool
from icalib.encoders.backbone import Tokenizer
from icalib.encoders.transformer import AbstractEncoder, TransformerEncoder
from icalib.models.checkpoint import load_ranker_config
from icalib.models.dual_encoder import DualEncoder, pool_cosines
from icalib.models.precision import Precision
from icalib.models.ranker import Ranker, load_for_scoring
from icalib.scoring.gain import AUTHORS_CHOICE, IntentChoice
from icalib.scoring.scorer import ScoringContext, average_members, score_pools
from icalib.scoring.untrained import untrained_table
from icalib.uncertainty.estimator import AbstractEstimator


@dataclass(frozen=True)
class LoadedBiEncoder:
    """A bi-encoder, whose logit is the cosine of context and candidate, as in runs of `bi-encoder` and `dual-encoder`.

    It computes in float32: calibrated logits are many times the cosine.
    """

    encoder: TransformerEncoder
    config: AbstractEncoder.Config
    layout: Layout
    device: torch.device

    @classmethod
    def load(cls, config: AbstractEncoder.Config, checkpoint: Path | None, device: torch.device) -> LoadedBiEncoder:
        """Load a bi-encoder.

        Args:
            config: the method's encoder, whose backbone is used without a checkpoint.
        """
        if checkpoint is not None:
            return cls._of(DualEncoder.load(checkpoint).encoder, load_ranker_config(checkpoint).encoder, device)
        plain = TransformerEncoder.Config(backbone=config.backbone, budget=config.budget)
        return cls._of(plain.build(num_intents=0, pretrained=True), config, device)

    @classmethod
    def of_start(cls, ranker: Ranker, device: torch.device) -> LoadedBiEncoder:
        """Return the bi-encoder of a ranker's similarity start."""
        assert ranker.bi_encoder is not None
        return cls._of(ranker.bi_encoder.encoder, ranker.config.encoder, device)

    @classmethod
    def _of(cls, encoder: TransformerEncoder, config: AbstractEncoder.Config, device: torch.device) -> LoadedBiEncoder:
        layout = Tokenizer(config.backbone).layout(config.budget, encoder.max_length, encoder.vocabulary)
        return cls(encoder.to(device).eval(), config, layout, device)

    @property
    def num_parameters(self) -> int:
        """Number of trained parameters: none, as no label trains them."""
        return 0

    @property
    def num_fixed(self) -> int:
        """Number of the backbone's weights."""
        return sum(parameter.numel() for parameter in self.encoder.parameters())

    def tokenize(self, pools: Sequence[Pool], path: Path) -> TokenStore:
        """Tokenise pools into a file at `path`."""
        return _tokenized(pools, path, self.config)

    def score(self, store: TokenStore, rows: Sequence[int], seed: int) -> tuple[pa.Table, None]:
        """Score pools (SCORE_SCHEMA): the cosine as the logit; nothing is random."""
        pools = list(store.pools(rows))
        return untrained_table(pools, pool_cosines(self.encoder, self.layout, pools, self.device), rows), None


@dataclass(frozen=True)
class LoadedMembers:
    """Loaded rankers whose probabilities are averaged."""

    contexts: tuple[ScoringContext, ...]
    with_intents: bool
    learns_bi_encoder: bool = False
    """Whether labels have trained the bi-encoders."""

    @classmethod
    def load(
        cls,
        members: Sequence[tuple[Path, AbstractEstimator.Config]],
        *,
        with_intents: bool,
        intent_choice: IntentChoice = AUTHORS_CHOICE,
        precision: Precision,
        max_tokens: int,
        device: torch.device,
        learns_bi_encoder: bool = False,
    ) -> LoadedMembers:
        """Load the members' checkpoints, each distinct one once."""
        rankers = {path: load_for_scoring(path, precision, device) for path, _ in members}
        contexts = tuple(
            ScoringContext(
                ranker=rankers[path],
                layout=rankers[path].layout,
                estimator=estimator.build(),
                device=device,
                precision=precision,
                max_tokens=max_tokens,
                intent_choice=intent_choice,
            )
            for path, estimator in members
        )
        return cls(contexts, with_intents, learns_bi_encoder)

    @property
    def rankers(self) -> list[Ranker]:
        """The distinct rankers of the members."""
        return list({id(context.ranker): context.ranker for context in self.contexts}.values())

    @property
    def device(self) -> torch.device:
        """Where the models are."""
        return self.contexts[0].device

    @property
    def num_parameters(self) -> int:
        """Number of trained parameters, without those of a cross-encoder that isn't used."""
        return sum(sum(_learnt(ranker, self.learns_bi_encoder).values()) for ranker in self.rankers)

    @property
    def num_fixed(self) -> int:
        """Number of other values: frozen backbones, random features, a posterior and its support set."""
        return sum(_num_fixed(ranker, _learnt(ranker, self.learns_bi_encoder)) for ranker in self.rankers)

    def tokenize(self, pools: Sequence[Pool], path: Path) -> TokenStore:
        """Tokenise pools into a file at `path`; gold intents are left out, because scoring predicts intents."""
        return _tokenized(pools, path, self.contexts[0].ranker.config.encoder)

    def score(self, store: TokenStore, rows: Sequence[int], seed: int) -> tuple[pa.Table, pa.Table | None]:
        """Score pools (SCORE_SCHEMA, averaged over members) and return predicted intents if there are two views."""
        scored = [
            score_pools(context, store, rows, with_intents=self.with_intents, seed=seed) for context in self.contexts
        ]
        return average_members([scores for scores, _ in scored]), scored[0][1]


Loaded = LoadedBiEncoder | LoadedMembers
"""What scores pools in this process."""


def _tokenized(pools: Sequence[Pool], path: Path, encoder: AbstractEncoder.Config) -> TokenStore:
    write_tokens(path, [pools], Tokenizer(encoder.backbone), (), encoder.budget)
    return TokenStore(path)


def _learnt(ranker: Ranker, learns_bi_encoder: bool) -> dict[int, int]:
    bi_encoder = list(ranker.bi_encoder.parameters()) if ranker.bi_encoder is not None and learns_bi_encoder else []
    trained = [parameter for parameter in ranker.parameters() if parameter.requires_grad and not ranker.skips_encoder]
    return {parameter.data_ptr(): parameter.numel() for parameter in (*bi_encoder, *trained)}


def _num_fixed(ranker: Ranker, learnt: Mapping[int, int]) -> int:
    posterior = ranker.posterior_head.posterior_state().values() if ranker.posterior_head is not None else ()
    used = [parameter for parameter in ranker.parameters() if not (parameter.requires_grad and ranker.skips_encoder)]
    distinct = {tensor.data_ptr(): tensor.numel() for tensor in (*ranker.buffers(), *posterior, *used)}
    return sum(size for address, size in distinct.items() if address not in learnt)
