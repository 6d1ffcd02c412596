"""The models of a finished run, loaded into this process to score pools without Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import torch
from torch import nn

from icalib.data.encoding import Intents, TokenPool, TokenStore, write_tokens
from icalib.data.schema import Pool
from icalib.encoders.backbone import Tokenizer
from icalib.encoders.transformer import AbstractEncoder
from icalib.models.bi_encoder import open_bi_encoder
from icalib.models.checkpoint import load_ranker_config
from icalib.models.precision import Precision
from icalib.models.ranker import Ranker
from icalib.parts.job import PartName, load_part
from icalib.parts.similarity import LoadedSimilarity
from icalib.parts.sum import SumOfParts, read_member
from icalib.scoring.column import Columns, LoadedPart, scores_of_columns
from icalib.scoring.cross import LoadedCross
from icalib.scoring.gain import AUTHORS_CHOICE, IntentChoice
from icalib.scoring.scores import average_members, intent_shard, pair_columns
from icalib.uncertainty.estimator import AbstractEstimator, Deterministic


@dataclass(frozen=True)
class LoadedSum:
    """One member: the parts that are used, by name, and their fitted sum."""

    fitted: SumOfParts
    parts: Mapping[PartName, LoadedPart]
    estimator: AbstractEstimator
    with_intents: bool

    @property
    def cross(self) -> Ranker | None:
        """The cross-encoder, if it is used."""
        part = self.parts.get("cross")
        return part.ranker if isinstance(part, LoadedCross) else None

    def score(self, pools: Sequence[TokenPool], seed: int) -> tuple[pa.Table, pa.Table | None]:
        """Return the scores of pools (SCORE_SCHEMA), and their predicted intents if there are two views."""
        parts: dict[PartName, Columns] = {}
        intents: Sequence[Intents] | None = None
        for name, part in self.parts.items():
            parts[name], found = part.columns(pools, seed, with_intents=self.with_intents, known=intents)
            intents = found if intents is None else intents
        softmax = self.cross is not None and self.cross.config.link == "softmax"
        names = pair_columns(pools, [pool.row for pool in pools], "plain")
        columns = self.fitted.columns(parts, len(names["row"]))
        scores = scores_of_columns(names, columns, self.estimator, softmax=softmax)
        return scores, None if intents is None else intent_shard(pools, intents)


@dataclass(frozen=True)
class LoadedMembers:
    """Loaded members whose probabilities are averaged."""

    sums: tuple[LoadedSum, ...]
    encoder: AbstractEncoder.Config
    """What tokenises."""
    device: torch.device

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
        """Load the members' folders, each with parts.json and a checkpoint for each part that is used."""
        sums: list[LoadedSum] = []
        loaded: dict[Path, LoadedPart] = {}  # two members may read one model
        for folder, estimator in members:
            fitted, paths = read_member(folder)
            parts: dict[PartName, LoadedPart] = {}
            for name, path in paths.items():
                if path not in loaded:
                    loaded[path] = load_part(name, path, estimator, precision, max_tokens, intent_choice, device)
                parts[name] = loaded[path].with_estimator(estimator)
            sums.append(LoadedSum(fitted, parts, estimator.build(), with_intents))
        return cls(tuple(sums), member_encoder(members[0][0]), device)

    @property
    def num_parameters(self) -> int:
        """Number of trained parameters."""
        return sum(sum(_trained(module).values()) for module in self._modules())

    @property
    def num_fixed(self) -> int:
        """Number of other values: frozen backbones, random features, a posterior and its support set."""
        return sum(_num_fixed(module, _trained(module)) for module in self._modules())

    def _modules(self) -> list[nn.Module]:
        modules = [part.module for one in self.sums for part in one.parts.values()]
        return list({id(module): module for module in modules}.values())

    def tokenize(self, pools: Sequence[Pool], path: Path) -> TokenStore:
        """Tokenise pools into a file at `path`; gold intents are left out, because scoring predicts intents."""
        write_tokens(path, [pools], Tokenizer(self.encoder.backbone), (), self.encoder.budget)
        return TokenStore(path)

    def score(self, store: TokenStore, rows: Sequence[int], seed: int) -> tuple[pa.Table, pa.Table | None]:
        """Score pools (SCORE_SCHEMA, averaged over members) and return predicted intents if there are two views."""
        pools = list(store.pools(rows))
        scored = [one.score(pools, seed) for one in self.sums]
        return average_members([scores for scores, _ in scored]), scored[0][1]


def load_untrained(config: AbstractEncoder.Config, checkpoint: Path | None, device: torch.device) -> LoadedMembers:
    """Load a bi-encoder whose logit is the cosine; in float32, as calibrated logits are many times the cosine.

    Without a checkpoint, it is the backbone of `config`.
    """
    model = open_bi_encoder(config, checkpoint).to(device).eval().requires_grad_(False)  # no label has trained it
    estimator = Deterministic.Config()
    part = LoadedSimilarity(model, "fp32", estimator)
    alone = LoadedSum(SumOfParts.alone("similarity"), {"similarity": part}, estimator.build(), with_intents=False)
    return LoadedMembers((alone,), model.config, device)


def member_encoder(folder: Path) -> AbstractEncoder.Config:
    """Return the settings of the encoder of a member's last part, whose tokenizer the member's own folder has."""
    _, paths = read_member(folder)
    return load_ranker_config([*paths.values()][-1]).encoder


def _trained(module: nn.Module) -> dict[int, int]:
    return {parameter.data_ptr(): parameter.numel() for parameter in module.parameters() if parameter.requires_grad}


def _num_fixed(module: nn.Module, trained: Mapping[int, int]) -> int:
    head = module.posterior_head if isinstance(module, Ranker) else None
    posterior = head.posterior_state().values() if head is not None else ()
    frozen = [parameter for parameter in module.parameters() if not parameter.requires_grad]
    distinct = {tensor.data_ptr(): tensor.numel() for tensor in (*module.buffers(), *posterior, *frozen)}
    return sum(size for address, size in distinct.items() if address not in trained)
