from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.dialogues import number_store
from helpers.observers import Silent
from helpers.tiny_models import BUDGET, ranker_config

from icalib.data.encoding import Layout, TokenStore
from icalib.models.ranker import Ranker
from icalib.training.local_engine import LocalEngine
from icalib.training.loop import train
from icalib.training.post_training.curriculum import MaskedInputs, PostTrainingCurriculum, Vocabulary, mask_tokens
from icalib.training.post_training.task import WindowTask
from icalib.training.post_training.utterance_relevance import UtteranceRelevance
from icalib.training.settings import TrainingSettings

CPU = torch.device("cpu")


def curriculum(config: WindowTask.Config, ranker: Ranker, store: TokenStore) -> PostTrainingCurriculum:
    return PostTrainingCurriculum(config, ranker, store, range(len(store)))


def test_the_loss_adds_masked_words_by_weight(store: TokenStore, ranker: Ranker) -> None:
    batch = curriculum(UtteranceRelevance.Config(), ranker, store).batches(0)[0]
    summed = {}
    with torch.inference_mode():
        for weight in (0.0, 0.1, 0.2):
            torch.manual_seed(1)
            made = curriculum(UtteranceRelevance.Config(masked_word_weight=weight), ranker, store)
            summed[weight] = made.losses(ranker, batch, CPU)[1].item()
    word_part = summed[0.2] - summed[0.1]
    assert word_part / (0.1 * len(batch)) == pytest.approx(np.log(ranker.encoder.vocabulary), rel=0.2)
    assert summed[0.0] / len(batch) < 5


def test_the_question_has_the_cross_entropy_of_its_head(store: TokenStore, ranker: Ranker) -> None:
    made = curriculum(UtteranceRelevance.Config(masked_word_weight=0), ranker, store)
    batch = made.batches(0)[0]
    with torch.inference_mode():
        _, loss = made.losses(ranker, batch, CPU)
    # at the start every class has about the same probability
    assert loss.item() / len(batch) == pytest.approx(np.log(3), rel=0.2)


def topics(folder: Path, number: int, seed: int) -> TokenStore:
    """Dialogues of four utterances of two words: one for the dialogue's topic, of two, and one for the place.

    Utterances of the other topic are certainly from another dialogue (¼), the others can be told apart by their place
    but for chance.
    """
    drawn = np.random.default_rng(seed).integers(10, 12, number)
    folder.mkdir()
    pools = {str(name): [f"{topic} {20 + place}" for place in range(4)] for name, topic in enumerate(drawn)}
    return number_store(folder, pools)


def test_relevance_is_learnt_beyond_chance(tmp_path: Path, tiny_bert: Path) -> None:
    training = TrainingSettings(
        epochs=6, learning_rate=1e-2, head_learning_rate=1e-3, batch_size=8, precision="fp32", warmup_fraction=0.0,
        selection_metric="NLL",
    )  # fmt: skip
    config = UtteranceRelevance.Config(training=training, masked_word_weight=0.1)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        plain = ranker_config(tiny_bert, turn_separators=True, dropout=0.0)
        ranker = Ranker(plain, masked_words=True, task_heads=config.task_heads)
    learnt = curriculum(config, ranker, topics(tmp_path / "train", 120, 1))
    train(ranker, LocalEngine(ranker, training), learnt, training, Silent(), seed=0, validation=None)
    others = curriculum(
        config.model_copy(update={"masked_word_weight": 0.0}), ranker.eval(), topics(tmp_path / "validation", 60, 2)
    )
    with torch.inference_mode():
        losses = [others.losses(ranker, batch, CPU)[1].item() / len(batch) for batch in others.batches(0)]
    assert np.mean(losses) < 0.9  # ln 2 and more is the least that can be had, 1.04 that of a guess by frequency


CLS, SEP, MASK = 2, 3, 4
LAYOUT = Layout(CLS, SEP, 0, 1, 900, 128, BUDGET, turn_separators=True)


def inputs(number: int) -> list[tuple[np.ndarray, int]]:
    rng = np.random.default_rng(1)
    context = [[rng.integers(5, 600, 8).astype(np.int32) for _ in range(4)] for _ in range(number)]
    return [LAYOUT.pair(LAYOUT.context_ids(turns[:3], None), turns[3]) for turns in context]


def masked(encoded: list[tuple[np.ndarray, int]], fraction: float, seed: int = 0) -> MaskedInputs:
    return mask_tokens(encoded, fraction, LAYOUT, Vocabulary(MASK, 600), np.random.default_rng(seed))


def test_words_are_hidden_at_the_share_and_separators_never() -> None:
    encoded = inputs(200)
    made = masked(encoded, 0.3)
    positions = [tuple(position) for position in made.positions_N2.tolist()]
    assert len(positions) == len(set(positions)) == 200 * round(0.3 * 32)
    before = np.array([encoded[row][0][position] for row, position in positions])
    after = np.array([made.encoded[row][0][position] for row, position in positions])
    assert made.tokens_N.tolist() == before.tolist()
    assert not np.isin(before, [CLS, SEP]).any()
    assert np.mean(after == MASK) == pytest.approx(0.8, abs=0.03)
    assert np.mean(after == before) == pytest.approx(0.1, abs=0.03)
    touched = set(positions)
    for row, ((old, start), (new, new_start)) in enumerate(zip(encoded, made.encoded, strict=True)):
        assert start == new_start
        assert all((row, position) in touched for position in np.flatnonzero(old != new).tolist())
    again, other = (masked(encoded, 0.3, seed).positions_N2.tolist() for seed in (0, 1))
    assert made.positions_N2.tolist() == again != other
    assert len(masked(encoded[:5], 0.001).positions_N2) == 5  # at least one word is hidden in each
