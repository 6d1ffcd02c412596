"""The models of a finished run, loaded into this process to score a few pools without Ray."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import torch

from icalib.data.encoding import TokenStore, write_tokens
from icalib.data.schema import Pool
from icalib.encoders.backbone import Tokenizer
from icalib.models.precision import Precision
from icalib.models.ranker import Ranker, load_for_scoring
from icalib.scoring.intent_choice import AUTHORS_CHOICE, IntentChoice
from icalib.scoring.scorer import ScoringContext, average_members, score_pools
from icalib.uncertainty.estimator import AbstractEstimator


@dataclass(frozen=True)
class LoadedMembers:
    """Loaded models whose probabilities are averaged."""

    contexts: tuple[ScoringContext, ...]
    with_intents: bool

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
    ) -> LoadedMembers:
        """Load the members' checkpoints, each distinct one once.

        Raises:
            RunFolderError, PosteriorError: see `load_ranker`.
        """
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
        return cls(contexts, with_intents)

    @property
    def rankers(self) -> list[Ranker]:
        """The distinct rankers of the members."""
        return list({id(context.ranker): context.ranker for context in self.contexts}.values())

    def tokenize(self, pools: Sequence[Pool], path: Path) -> TokenStore:
        """Tokenise pools into a file at `path`; gold intents are left out, because scoring predicts intents."""
        encoder = self.contexts[0].ranker.config.encoder
        write_tokens(path, [pools], Tokenizer(encoder.backbone), (), encoder.budget)
        return TokenStore(path)

    def score(self, store: TokenStore, rows: Sequence[int], seed: int) -> tuple[pa.Table, pa.Table | None]:
        """Score pools (SCORE_SCHEMA, averaged over members) and return predicted intents if there are two views."""
        scored = [
            score_pools(context, store, rows, with_intents=self.with_intents, seed=seed) for context in self.contexts
        ]
        return average_members([scores for scores, _ in scored]), scored[0][1]
