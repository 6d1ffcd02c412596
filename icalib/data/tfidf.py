"""TF-IDF vectors of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scipy.sparse import csr_array

from icalib.data.bm25 import tokenize


def tfidf_vectors(texts: Sequence[str]) -> csr_array:
    """Return vectors [N, V] of length 1, with 1 + log of the counts; zero for texts without words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not any(map(tokenize, texts)):
        return csr_array((len(texts), 1))
    options: dict[str, Any] = {"analyzer": tokenize, "sublinear_tf": True}
    return csr_array(TfidfVectorizer(**options).fit_transform(texts))
