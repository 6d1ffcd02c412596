"""Rows that the MLflow model refuses."""

from __future__ import annotations

from typing import Any

import pytest

from icalib.exports.icalib_pyfunc import PairRanker


@pytest.mark.parametrize("context", [None, float("nan"), [], "a text", 7])
def test_a_context_that_is_no_list_is_refused_with_its_row(context: Any) -> None:
    with pytest.raises(ValueError, match=r"row 3: context is .*expected a list of one utterance or more"):
        object.__new__(PairRanker)._context(context, 3)
