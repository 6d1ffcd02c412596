"""The papers' tables as they are resolved: every row's settings against the protocol, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from icalib.api.options import RunTemplate
from icalib.api.reproduction import planned_rows, prepare_hint
from icalib.core.component import described
from icalib.core.files import read_json, write_json
from icalib.core.run_tables import RoundSummary  # noqa: F401
from icalib.data.pools import read_pool_set
from icalib.reports.paper_table import TableRow
from icalib.tables.table import load_table, table_names

Plan = Callable[..., list[TableRow]]
