"""`icalib.label_next` and `icalib.label_import`: which pools to label next, and their labels back into pools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from icalib.api.options import Place, PlaceKeywords, choice
from icalib.core.errors import SettingError
from icalib.core.storage import local_path, pull

if TYPE_CHECKING:
    from icalib.labelling.batches import Batch, By
    from icalib.labelling.importing import Imported


def label_next(
    run: str | Path | None = None,
    out: str | Path = "batch.json",
    *,
    data: str | Path | None = None,
    number: int = 50,
    by: By | None = None,
    seed: int = 1,
    suggest: bool = False,
    **place: Unpack[PlaceKeywords],
) -> Batch:
    """Choose unlabelled training pools for annotators, and write them as Label Studio's tasks or as a CSV.

        icalib.label_next("runs/default/bert-mine-0.1-s1", "batch.json", by="mixed")

    A SettingError says that an argument is invalid, that `out` exists, or that there is no unlabelled pool.

    Args:
        run: a finished run, among whose unlabelled pools are chosen.
        out: a .json file (Label Studio; its labelling configuration is written beside it as .xml) or a .csv file.
        data: a pool folder in place of a run, for the first labels; pools are then chosen at random.
        number: how many pools.
        by: random, uncertain, diverse or mixed; None: mixed with a run, random without one.
        seed: draws random pools, and the order of equally uncertain ones.
        suggest: select the model's best candidate in Label Studio's tasks beforehand, which influences annotators.
        place: where the run scores its unlabelled pools.
    """
    from icalib.labelling.batches import WAYS, Batch, check_out, write_batch

    path, how = local_path(out), choice("by", by or ("random" if run is None else "mixed"), WAYS)
    if (run is None) == (data is None):
        raise SettingError("give either a run or a pool folder (`data`), whose pools are chosen at random.")
    if number < 1:
        raise SettingError(f"`number` is {number}: expected a number of pools above 0.")
    if run is None and (how != "random" or suggest):
        raise SettingError(f"--by {how} and suggestions need a model: name a run, or choose --by random.")
    if suggest and path.suffix == ".csv":
        raise SettingError("suggestions are for Label Studio: write a .json file, or leave them out.")
    pull(path)
    check_out(path)
    from icalib.api.session import session
    from icalib.labelling.choose import Unlabelled, best_candidates, choose, training_predictions
    from icalib.pipeline.finished import FinishedRun

    finished = None if run is None else FinishedRun.open(local_path(run))
    unlabelled = Unlabelled.of(local_path(data or "") if finished is None else finished.config.data, finished)
    predictions = None
    if finished is not None and (suggest or how in ("uncertain", "mixed")):
        with session(Place.of(place)) as active:
            predictions = training_predictions(finished, unlabelled.data, active.context)
    chosen = choose(unlabelled, how, number, seed, finished, predictions)
    pools = unlabelled.pools(chosen.indices)
    suggestions = best_candidates(predictions) if suggest and predictions is not None else {}
    name = "" if finished is None else finished.folder.name
    return Batch(
        path=path,
        config=write_batch(path, pools, unlabelled.pool_set, suggestions, name),
        pool_ids=tuple(pool.pool_id for pool in pools),
        num_dialogues=len({pool.dialog_id for pool in pools}),
        num_unlabelled=len(unlabelled.rows),
        how=chosen.how,
        data=unlabelled.data,
    )


def label_import(file: str | Path, data: str | Path, out: str | Path) -> Imported:
    """Write the pools of `data` with the labels of an annotators' file to the new pool folder `out`.

        icalib.label_import("export.json", "pools/mine", "pools/mine-2")

    Labelled pools come first in the order of labels, and the folder's labelled fraction is theirs. A DataError names
    the record that is not valid or not about these pools; a SettingError says that `out` exists.

    Args:
        file: Label Studio's JSON export, Argilla's records (JSON or JSONL), or the CSV that `label_next` wrote.
        data: the pool folder that the pools were chosen from.
        out: pool folder to write.
    """
    from icalib.labelling.importing import import_labels

    return import_labels(local_path(file), local_path(data), local_path(out))
