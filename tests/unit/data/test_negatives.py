from __future__ import annotations

from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest
from helpers.pool_folders import made_pool
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from icalib.data.bm25 import bm25_matrices, tokenize
from icalib.data.negatives import QueryBlock, _best_first, mine_block, query_blocks, write_index
from icalib.scoring.untrained import likeness_scores

word = st.sampled_from([f"w{n}" for n in range(12)])
corpora = st.lists(st.lists(word, min_size=0, max_size=8), min_size=3, max_size=25)


def mine(
    folder: Path, texts: list[str], num_negatives: int, sampler: str = "bm25-response", seed: int = 5
) -> np.ndarray:
    write_index(folder, texts, np.arange(len(texts)), np.arange(len(texts)), sampler)
    blocks = query_blocks(folder, len(texts), sampler=sampler, num_negatives=num_negatives, seed=seed)
    return np.concatenate([mine_block(block) for block in blocks])


def test_ties_are_in_the_same_random_order_however_a_sampler_yields_them() -> None:
    block = QueryBlock("index", 0, 1, "random", num_negatives=2, seed=1)
    rows, scores = np.arange(30), np.repeat([3.0, 2.0, 1.0], 10)
    other = np.random.default_rng(0).permutation(30)
    found = [list(_best_first(rows[order], scores[order], block, query=0)) for order in (rows, other)]
    assert found[0] == found[1]
    assert sorted(found[0][:10]) == list(range(10)) != found[0][:10]


def test_tasks_know_their_index_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those on a cluster run in that of its processes."""
    monkeypatch.chdir(tmp_path)
    (block,) = query_blocks(Path("index"), 5, sampler="random", num_negatives=2, seed=0)
    assert block.folder == str(tmp_path / "index")


@given(corpus=corpora)
def test_matrices_give_the_scores_of_bm25okapi(corpus: list[list[str]]) -> None:
    counts, weights = bm25_matrices(corpus)
    ours = (counts @ weights.T).toarray()
    if any(corpus):
        okapi = BM25Okapi(corpus)
        assert ours == pytest.approx(np.array([okapi.get_scores(query) for query in corpus]), abs=1e-9)
    else:
        assert not ours.any()


@pytest.mark.parametrize("text", ["मुझे प्रिंटर की समस्या है", "நான் உதவி", "مُحَمَّد هنا", "điện thoại hỏng", "it is 5 gb"])
def test_vowels_and_accents_that_are_marks_are_of_their_words(text: str) -> None:
    assert tokenize(text) == text.split()
    assert tokenize(normalize("NFD", text.upper())) == text.split()
    assert tokenize(f"\u0301 «{text}» ❤\ufe0f!") == text.split()  # marks without a word are none


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("打印机坏了，请帮忙", "打印 印机 机坏 坏了 请帮 帮忙"),
        ("プリンターが5台", "プリ リン ンタ ター ーが 5 台"),
        ("น้ำ", "น้ ้ำ"),
        ("프린터가 고장", "프린터가 고장"),  # Korean has spaces
    ],
)
def test_texts_of_scripts_without_spaces_have_words_in_common(text: str, words: str) -> None:
    """Else two of them share a word where they share a whole clause, and mined negatives are random ones."""
    assert tokenize(text) == words.split()


@settings(max_examples=40)
@given(corpus=corpora)
def test_mined_negatives_are_the_best_of_plain_bm25(
    tmp_path_factory: pytest.TempPathFactory, corpus: list[list[str]]
) -> None:
    texts = [" ".join(["x" * (n + 1), *tokens]) for n, tokens in enumerate(corpus)]  # no copies
    mined = mine(tmp_path_factory.mktemp("index"), texts, 2)
    okapi = BM25Okapi([tokenize(text) for text in texts])
    for query, rows in enumerate(mined):
        scores = okapi.get_scores(tokenize(texts[query]))
        best = np.sort(np.delete(scores, query))[::-1][:2]
        positive = best > 1e-9  # below that the fill is random
        assert scores[rows][positive] == pytest.approx(best[positive], abs=1e-8)


def test_ties_are_broken_at_random_not_by_row(tmp_path: Path) -> None:
    texts = [f"same words {n}" for n in range(60)]
    mined = mine(tmp_path / "a", texts, 5)
    assert np.array_equal(mined, mine(tmp_path / "b", texts, 5))
    assert not np.array_equal(mined, mine(tmp_path / "c", texts, 5, seed=6))
    counts = np.bincount(mined.ravel(), minlength=60)
    assert counts.max() < 20  # no row is everybody's negative


NUM_TEXTS, NUM_TOPICS = 600, 12


def corpus() -> list[str]:
    """Texts of 2 to 14 words, two thirds of them from the text's topic; some words are frequent everywhere."""
    rng = np.random.default_rng(3)
    texts = []
    for number in range(NUM_TEXTS):
        size = int(rng.integers(2, 15))
        topic = int(rng.integers(NUM_TOPICS))
        own = rng.integers(25, size=size) + 100 * topic
        common = np.minimum(rng.zipf(1.6, size), 40) + 5000
        words = np.where(rng.random(size) < 2 / 3, own, common)
        texts.append(" ".join([*(f"w{word}" for word in words), f"only{number}"]))
    return texts


def shares(texts: list[str], negatives: np.ndarray) -> tuple[float, float]:
    """How often the right one is the candidate most, and least, like the others."""
    pools = [made_pool([texts[row], *(texts[n] for n in others)]) for row, others in enumerate(negatives)]
    scores = likeness_scores(pools)
    return float(np.mean([s[0] == s.max() for s in scores])), float(np.mean([s[0] == s.min() for s in scores]))


def test_the_right_response_is_not_marked_where_bm25_marks_it(tmp_path: Path) -> None:
    texts = corpus()
    most, least = shares(texts, mine(tmp_path / "n", texts, 9, "neighbourhood"))
    assert 0.04 < most < 0.17  # 0.1 by chance
    assert 0.04 < least < 0.17
    marked, _ = shares(texts, mine(tmp_path / "b", texts, 9, "bm25-response"))
    assert marked > 0.5


def test_negatives_are_more_like_the_right_response_than_random_ones(tmp_path: Path) -> None:
    texts = corpus()
    words = [set(text.split()) for text in texts]

    def shared(negatives: np.ndarray) -> float:
        return float(np.mean([len(words[row] & words[other]) for row, rows in enumerate(negatives) for other in rows]))

    near, random = (shared(mine(tmp_path / name, texts, 9, name)) for name in ("neighbourhood", "random"))
    assert near > 1.3 * random
