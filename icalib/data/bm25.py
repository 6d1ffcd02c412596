"""BM25 (as `rank_bm25.BM25Okapi`) and TF-IDF between texts, and the sampler of negatives with the highest BM25."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any
from unicodedata import category, normalize

import numpy as np
from rank_bm25 import BM25Okapi
from scipy.sparse import csr_array

from icalib.data.negatives import NegativeSampler, Rows, Scores

QUERY_ROWS = 16
"""Queries scored at once, of which each pays a sixteenth of what a sparse product costs before its first number."""
_WITHOUT_SPACES = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, Japanese and Chinese."""
_RUN_WITHOUT_SPACES = re.compile(f"[{_WITHOUT_SPACES}]+")
_RUN = re.compile(f"[{_WITHOUT_SPACES}]+|[^{_WITHOUT_SPACES}]+")
_EMOJI = range(0xFE00, 0xFE10)
"""Marks that choose between text and picture, and are of no word."""


def tokenize(text: str) -> list[str]:
    """Return the lower-cased words of a text, as BM25 sees them; of a script without spaces, pairs of characters.

    Example:
        >>> tokenize("It's 5 GB, isn't it?")
        ['it', 's', '5', 'gb', 'isn', 't', 'it']
        >>> tokenize("USB打印机 坏")
        ['usb', '打印', '印机', '坏']
    """
    if text.isascii():
        return re.findall(r"\w+", text.lower())
    words = _words().findall(normalize("NFC", text).lower())
    return [part for word in words for run in _RUN.findall(word) for part in _parts(run)]


def _parts(run: str) -> list[str]:
    """Return a word, or the pairs of neighbouring characters in a run of a script without spaces."""
    if len(run) < 3 or not _RUN_WITHOUT_SPACES.match(run):
        return [run]
    return [run[start : start + 2] for start in range(len(run) - 1)]


@cache
def _words() -> re.Pattern[str]:
    """Return a pattern of words with their marks: vowels of Hindi, Tamil and Thai, and accents without a letter of
    their own, none of which is of `\\w`.
    """
    marks = (chr(code) for code in range(0x300, 0x1F000) if code not in _EMOJI)
    return re.compile(rf"\w[\w{''.join(mark for mark in marks if category(mark) in ('Mn', 'Mc'))}]*")


def bm25_matrices(tokens: Sequence[Sequence[str]]) -> tuple[csr_array, csr_array]:
    """Return word counts and BM25 weights, both [N, V], such that counts @ weights.T are BM25Okapi's scores [N, N].

    Weight of word w in response d: idf(w) · f (k1 + 1) / (f + k1 (1 − b + b |d| / avgdl)), f being the count of w
    in d, with BM25Okapi's idf (at least epsilon times the mean idf), k1 and b.
    """
    if not any(tokens):  # BM25Okapi divides by the number of words
        return csr_array((len(tokens), 1)), csr_array((len(tokens), 1))
    okapi = BM25Okapi(tokens)
    column = {word: index for index, word in enumerate(okapi.idf)}
    lengths = [len(frequencies) for frequencies in okapi.doc_freqs]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    words = chain.from_iterable(okapi.doc_freqs)
    columns = np.fromiter((column[word] for word in words), dtype=np.int32, count=indptr[-1])
    frequencies = chain.from_iterable(frequencies.values() for frequencies in okapi.doc_freqs)
    count = np.fromiter(frequencies, dtype=np.float64, count=indptr[-1])
    idf = np.fromiter(okapi.idf.values(), dtype=np.float64, count=len(column))
    length = np.repeat(np.asarray(okapi.doc_len, dtype=np.float64), lengths)
    norm = okapi.k1 * (1 - okapi.b + okapi.b * length / okapi.avgdl)
    weight = idf[columns] * count * (okapi.k1 + 1) / (count + norm)
    shape = (len(tokens), len(column))
    return csr_array((count, columns, indptr), shape), csr_array((weight, columns, indptr), shape)


def _write_index(index: Path, responses: Iterable[str]) -> None:
    counts, weights = bm25_matrices([tokenize(response) for response in responses])
    save_sparse(index, "count", counts)
    save_sparse(index, "weight", weights.T.tocsr())


def _scores(index: Path, queries: range) -> Iterator[tuple[Rows, Scores]]:
    counts, weights = load_sparse(index, "count"), load_sparse(index, "weight")
    for start in range(queries.start, queries.stop, QUERY_ROWS):
        scores = csr_array(counts[start : min(start + QUERY_ROWS, queries.stop)] @ weights)
        values = np.asarray(scores.data, dtype=np.float64)
        for first, last in zip(scores.indptr[:-1], scores.indptr[1:], strict=True):
            yield scores.indices[first:last].astype(np.int64), values[first:last]


def tfidf_vectors(texts: Sequence[str]) -> csr_array:
    """Return vectors [N, V] of length 1, with 1 + log of the counts; zero for texts without words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not any(map(tokenize, texts)):
        return csr_array((len(texts), 1))
    options: dict[str, Any] = {"analyzer": tokenize, "sublinear_tf": True}
    return csr_array(TfidfVectorizer(**options).fit_transform(texts))


def save_sparse(folder: Path, name: str, matrix: csr_array) -> None:
    """Write a sparse matrix as .npy files, which `load_sparse` maps into memory."""
    for part in ("data", "indices", "indptr"):
        np.save(folder / f"{name}_{part}.npy", getattr(matrix, part))
    np.save(folder / f"{name}_shape.npy", np.asarray(matrix.shape))


def load_sparse(folder: Path, name: str) -> csr_array:
    """Return a matrix that `save_sparse` wrote, mapped into memory."""
    data, indices, indptr, shape = (
        np.load(folder / f"{name}_{part}.npy", mmap_mode="r") for part in ("data", "indices", "indptr", "shape")
    )
    return csr_array((data, indices, indptr), tuple(shape.tolist()))


bm25 = NegativeSampler(_write_index, _scores)
