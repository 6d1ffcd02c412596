from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path

from icalib.data.schema import Pool, Utterance
from icalib.labelling.table import read_table, table_text


def test_no_cell_is_a_formula_and_texts_come_back_as_they_were(tmp_path: Path) -> None:
    texts = ["=HYPERLINK(1)", "+1 for that", "-", "@anna", "'tis", "'=1", "Restart it."]
    context = [Utterance(speaker="user", text="=1+1")]
    pool = Pool(pool_id="=A1", dialog_id="d", split="train", context=context, candidates=texts, label=0, domain="")
    written = table_text([pool])
    cells = [cell for row in csv.reader(StringIO(written)) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]
    (tmp_path / "table.csv").write_text(written)
    (answer,) = read_table(tmp_path / "table.csv")
    assert (answer.pool_id, list(answer.candidates)) == ("=A1", texts)
