"""Contexts and the utterances that follow them, in pools and in logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from icalib.core.errors import SettingError
from icalib.data.encoding import Ids, Keys, TokenStore
from icalib.data.logs import LogStore
from icalib.training.domain_pretraining.windows import Ints, Mask, PoolAnswers, are_candidates, following, pair_keys

Targets = Literal["windows", "logs", "replies"]

_WINDOW, _REPLY, _LOG = 0, 1, 2


class Corpus(NamedTuple):
    """What contrastive domain pre-training reads.

    `rows` are the pools of `store` whose contexts are used, labelled or not. No candidate of a pool of `store` or
    `held_out` becomes a target after the pool's last utterance, and no dialogue of `logs` in which a candidate of
    `held_out` follows that is used at all.
    """

    store: TokenStore
    rows: Sequence[int]
    held_out: Sequence[TokenStore] = ()
    logs: LogStore | None = None


class _Found(NamedTuple):
    """Targets of one kind: where each one is, its key, and that of the utterance before it."""

    rows: Ints
    positions: Ints
    before: Keys
    keys: Keys


class Responses:
    """Distinct pairs of a context and the utterance that follows it.

    Targets are utterances within the contexts of pools (`windows`), also those of logs (`logs`), or also the right
    candidates of training pools, labelled or not (`replies`). Pairs with the same target after the same utterance are
    used once, with the longest context, of at most `context_turns` utterances. A SettingError says that there are no
    two different targets.
    """

    def __init__(self, corpus: Corpus, targets: Targets, context_turns: int) -> None:
        self._corpus, self._context_turns = corpus, context_turns
        found = {_WINDOW: _windows(corpus)}
        if targets != "windows" and corpus.logs is not None:
            found[_LOG] = _log_windows(corpus, corpus.logs)
        if targets == "replies":
            found[_REPLY] = _replies(corpus)
        parts = list(found.values())
        positions = np.concatenate([part.positions for part in parts])
        keys = np.concatenate([part.keys for part in parts])
        before = np.concatenate([part.before for part in parts])
        kept = _longest(pair_keys(before, keys), np.minimum(positions, context_turns))
        self.kinds = np.concatenate([np.full(len(part.rows), kind) for kind, part in found.items()])[kept]
        self.rows = np.concatenate([part.rows for part in parts])[kept]
        self.positions, self.keys = positions[kept], keys[kept]
        if len(np.unique(self.keys)) < 2:
            raise SettingError(
                "contrastive domain pre-training found no two different utterances to predict: the contexts have one "
                "utterance each, or all the same. Prepare the data with longer contexts or with --logs, or disable "
                "domain pre-training with --set domain_pretraining=null."
            )

    def __len__(self) -> int:
        return len(self.rows)

    def context(self, index: int) -> list[Ids]:
        """Return the token ids of the utterances before a target."""
        position = int(self.positions[index])
        return self._utterances(index, max(0, position - self._context_turns), position)

    def target(self, index: int) -> Ids:
        """Return the token ids of a target."""
        if self.kinds[index] == _REPLY:
            pool = self._corpus.store.pool(int(self.rows[index]))
            return pool.candidates[pool.label]
        position = int(self.positions[index])
        return self._utterances(index, position, position + 1)[0]

    def _utterances(self, index: int, start: int, stop: int) -> list[Ids]:
        logs = self._corpus.logs
        store = logs if logs is not None and self.kinds[index] == _LOG else self._corpus.store
        return store.utterances(int(self.rows[index]), start, stop)


def _longest(keys: Keys, sizes: Ints) -> Ints:
    order = np.lexsort((-sizes, keys))
    _, first = np.unique(keys[order], return_index=True)
    return np.sort(order[first])


def _windows(corpus: Corpus) -> _Found:
    contexts = corpus.store.keys("context_keys")
    row, position, flat = following(contexts)
    kept = np.isin(row, corpus.rows) & ~are_candidates(corpus.store, corpus.held_out)[flat]
    return _kept(_Found(row, position, contexts.values[flat - 1], contexts.values[flat]), kept)


def _log_windows(corpus: Corpus, logs: LogStore) -> _Found:
    """Find the targets in logs that are no candidate, without dialogues that contain one of a held-out pool."""
    dialogues = logs.keys()
    row, position, flat = following(dialogues)
    before, keys = dialogues.values[flat - 1], dialogues.values[flat]
    kept = ~PoolAnswers([corpus.store]).among(before, keys)
    if corpus.held_out:
        held_out = PoolAnswers(corpus.held_out).among(before, keys)
        kept &= ~np.isin(row, row[held_out])
    return _kept(_Found(row, position, before, keys), kept)


def _replies(corpus: Corpus) -> _Found:
    contexts, candidates = corpus.store.keys("context_keys"), corpus.store.keys("candidate_keys")
    labels = corpus.store.column("label").astype(np.int64)
    rows = np.asarray(corpus.rows, np.int64)
    rows = rows[labels[rows] >= 0]
    return _Found(
        rows,
        np.diff(contexts.offsets)[rows],
        contexts.values[contexts.offsets[rows + 1] - 1],
        candidates.values[candidates.offsets[rows] + labels[rows]],
    )


def _kept(found: _Found, mask: Mask) -> _Found:
    return _Found(found.rows[mask], found.positions[mask], found.before[mask], found.keys[mask])
