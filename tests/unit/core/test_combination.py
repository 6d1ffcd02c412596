from __future__ import annotations

import pytest

from icalib.core.combination import Capabilities, Capability, Combinable, check_combination

TURNS = Capability("encoder", "vectors of turns", "Use turn-encoder")


class TurnLoss(Combinable):
    def requires(self) -> Capabilities:
        return {TURNS}


class TurnEncoder(Combinable):
    def provides(self) -> Capabilities:
        return {TURNS}


@pytest.mark.parametrize(("encoder", "found"), [(TurnLoss(), "TurnLoss"), (None, "nothing")])
def test_a_capability_that_is_required_and_missing_is_refused(encoder: Combinable | None, found: str) -> None:
    message = rf"found {found} as `encoder`, expected vectors of turns, which TurnLoss \(`loss`\) requires. Use turn"
    with pytest.raises(ValueError, match=message):
        check_combination({"loss": TurnLoss(), "encoder": encoder})


def test_what_is_provided_or_not_read_is_accepted() -> None:
    check_combination({"loss": TurnLoss(), "encoder": TurnEncoder()})
    check_combination({"loss": TurnLoss()})
