"""A negative sampler that prefers responses with similar spelling: the cosine of their counts of three letters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from zlib import crc32

import numpy as np

from icalib.data.negatives import NegativeSampler

WIDTH = 256


def write_vectors(index: Path, responses: Iterable[str]) -> None:
    np.save(index / "vectors.npy", np.stack([vector(response) for response in responses]))


def vector(text: str) -> np.ndarray:
    counts = np.zeros(WIDTH)
    for start in range(len(text) - 2):
        counts[crc32(text[start : start + 3].lower().encode()) % WIDTH] += 1
    return counts / max(1.0, float(np.linalg.norm(counts)))


def cosines(index: Path, queries: range) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    vectors = np.load(index / "vectors.npy", mmap_mode="r")
    rows = np.arange(len(vectors))
    for query in queries:
        yield rows, vectors @ vectors[query]


nearest = NegativeSampler(write_vectors, cosines)
