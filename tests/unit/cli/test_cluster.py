"""What `icalib plan` takes its argument for."""

from __future__ import annotations

import pytest

from icalib.cli.cluster import is_space
from icalib.core.errors import SettingError


@pytest.mark.parametrize("name", ["icast_tpe", "icast-tpe", "gpf_bert", "my_lab/gpf-bert.py", "idea.py"])
def test_a_space_is_told_by_its_name_or_file(name: str) -> None:
    assert is_space(name)


@pytest.mark.parametrize("name", ["gpf-bert", "mc_dropout", "pg-drr@head.kernel=matern", "my_lab.methods.idea7"])
def test_a_method_is_told_by_its_name_or_import_path(name: str) -> None:
    assert not is_space(name)


def test_what_is_neither_is_refused_with_what_there_is() -> None:
    with pytest.raises(SettingError, match=r"no method or space `icast-tpee`.*icast_tpe"):
        is_space("icast-tpee")
