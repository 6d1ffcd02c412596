"""`icalib.label_next`, `label_suspects`, `label_ask`, `label_import` and `evaluate_judged`.

Pools for annotators or a language model, their labels back into pools, and a run's metrics from a few labels and
another judge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from icalib.api.options import Place, PlaceKeywords, choice
from icalib.core.errors import SettingError
from icalib.core.storage import local_path, pull

if TYPE_CHECKING:
    from icalib.data.schema import Split
    from icalib.labelling.ask import AskPlan, AskResult
    from icalib.labelling.batches import Batch, By
    from icalib.labelling.importing import Imported
    from icalib.labelling.judged import JudgedMetrics
    from icalib.labelling.suspects import Suspects


def label_next(
    run: str | Path | None = None,
    out: str | Path = "batch.json",
    *,
    data: str | Path | None = None,
    number: int = 50,
    by: By = "random",
    seed: int = 1,
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
        by: random, uncertain, diverse or mixed; all but random need a run.
        seed: draws random pools, and the order of equally uncertain ones.
        place: where the run scores its unlabelled pools.
    """
    from icalib.labelling.batches import WAYS, Batch, check_out, write_batch

    where, path, how = Place.of(place), local_path(out), choice("by", by, WAYS)
    if (run is None) == (data is None):
        raise SettingError("give either a run or a pool folder (`data`), whose pools are chosen at random.")
    if number < 1:
        raise SettingError(f"`number` is {number}: expected a number of pools above 0.")
    if run is None and how != "random":
        raise SettingError(f"--by {how} needs a model: name a run, or choose --by random.")
    pull(path)
    check_out(path)
    from icalib.api.session import session
    from icalib.labelling.choose import Unlabelled, choose, training_predictions
    from icalib.pipeline.finished import FinishedRun

    finished = None if run is None else FinishedRun.open(local_path(run))
    unlabelled = Unlabelled.of(local_path(data or "") if finished is None else finished.config.data, finished)
    predictions = None
    if finished is not None and how in ("uncertain", "mixed"):
        with session(where) as active:
            predictions = training_predictions(finished, unlabelled.data, active.context)
    chosen = choose(unlabelled, how, number, seed, finished, predictions)
    pools = unlabelled.pools(chosen.indices)
    return Batch(
        path=path,
        config=write_batch(path, pools, unlabelled.pool_set),
        pool_ids=tuple(pool.pool_id for pool in pools),
        num_dialogues=len({pool.dialog_id for pool in pools}),
        num_unlabelled=len(unlabelled.rows),
        how=chosen.how,
        data=unlabelled.data,
    )


def label_suspects(
    run: str | Path, out: str | Path | None = None, *, number: int = 50, folds: int = 2, **place: Unpack[PlaceKeywords]
) -> Suspects:
    """Find labelled training pools of a run whose label is probably wrong, and write them for annotators.

        found = icalib.label_suspects("runs/default/bert-mine-0.1-s1", "suspects.json")
        found.num_suspects, found.suspects[0].pool.context

    A SettingError says that an argument is invalid, that `out` exists, or that the run's method isn't trained.

    Args:
        run: a finished run, whose first model is trained again without each fold of the labelled pools.
        out: a .json or .csv file, as of `label_next`; None writes none, and neither does a run without suspects.
        number: how many pools, at most.
        folds: K trainings on (K − 1)/K of the labels each, which take K − 1 times as long as one on all.
        place: where they are trained.
    """
    from icalib.labelling.batches import check_out, write_batch

    where, path = Place.of(place), None if out is None else local_path(out)
    if number < 1 or folds < 2:
        raise SettingError(f"found number={number} and folds={folds}: expected 1 or more pools, and 2 or more folds.")
    if path is not None:
        pull(path)
        check_out(path)
    from icalib.api.session import session
    from icalib.labelling.suspects import find_suspects
    from icalib.pipeline.finished import FinishedRun

    finished = FinishedRun.open(local_path(run))
    with session(where) as active:
        found = find_suspects(finished, number, folds, active.context)
    if path is not None and found.suspects:
        write_batch(path, [one.pool for one in found.suspects], found.pool_set)
    return found


def label_ask(
    data: str | Path,
    out: str | Path = "answers.jsonl",
    *,
    url: str,
    model: str,
    split: Split = "train",
    number: int | None = None,
    scores: str | Path | None = None,
    requests_per_minute: float = 60.0,
    max_tokens: int = 16,
    key_variable: str = "OPENAI_API_KEY",
    allow_http: bool = False,
    before: Callable[[AskPlan], None] = lambda plan: None,
    note: Callable[[str], None] = lambda text: None,
) -> AskResult:
    """Ask a language model once about each of some pools which candidate is right, for `label_import`.

        icalib.label_ask("pools/mine", url="http://127.0.0.1:8000/v1", model="NAME").checked

    The texts of the dialogues are sent to the endpoint. Answers are added to `out` one by one; the same call asks for
    what is missing. A SettingError says that an argument is invalid, an EndpointError that the endpoint refused a
    request or stayed busy.

    Args:
        data: pool folder.
        out: .jsonl file of answers.
        url: of an OpenAI-compatible endpoint, up to its version.
        model: the model's name there.
        split: train, validation or test; answers about the latter two can only be a judge's scores.
        number: how many unlabelled training pools, besides at most 100 labelled ones that measure the model's precision
            (None: 300), or how many pools of another split (None: all, also with `scores`).
        scores: .jsonl file to write as well, for `evaluate_judged`; that needs all pools of the split.
        requests_per_minute: maximum number of requests that begin in a minute.
        max_tokens: maximum length of a reply.
        key_variable: environment variable that has the API key; without it none is sent.
        allow_http: send texts and key unencrypted to another machine.
        before: is called with what will be sent; what it raises ends the call.
        note: receives why requests wait.
    """
    from icalib.data.schema import SPLITS
    from icalib.labelling.ask import ask
    from icalib.labelling.chat import Chat

    chosen, path, judge = choice("split", split, SPLITS), local_path(out), local_path(scores) if scores else None
    if min(1 if number is None else number, max_tokens) < 1:
        raise SettingError(f"found number={number} and max_tokens={max_tokens}: expected numbers above 0.")
    if not model.strip():
        raise SettingError("the name of the model is empty. Give the one that the server knows.")
    for file in (path, judge):
        if file is not None and file.suffix != ".jsonl":
            raise SettingError(f"{file}: the name ends in {file.suffix!r}. Name a .jsonl file.")
    if judge is not None and judge.resolve() == path.resolve():
        raise SettingError(f"{judge} is to have both the answers and the scores. Name another file for the scores.")
    chat = Chat(url, key_variable, requests_per_minute, allow_http, note)
    return ask(
        local_path(data), chosen, path, chat, model, number=number, max_tokens=max_tokens, before=before, scores=judge
    )


def label_import(file: str | Path, data: str | Path, out: str | Path) -> Imported:
    """Write the pools of `data` with the labels of an annotators' file to the new pool folder `out`.

    A language model's answers become soft labels of its measured precision, from which only training learns.

        icalib.label_import("export.json", "pools/mine", "pools/mine-2")

    Labelled pools come first in the order of labels, and the folder's labelled fraction is theirs. A DataError names
    the record that is not valid or not about these pools; a SettingError says that `out` exists.

    Args:
        file: Label Studio's JSON export, the CSV that `label_next` wrote, or a language model's answers.
        data: the pool folder that the pools were chosen from.
        out: pool folder to write.
    """
    from icalib.labelling.importing import import_labels

    return import_labels(local_path(file), local_path(data), local_path(out))


def evaluate_judged(
    run: str | Path,
    judged: str | Path,
    judge: str | Path,
    *,
    data: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    **place: Unpack[PlaceKeywords],
) -> JudgedMetrics:
    """Infer a run's R@1 and MAP on many pools from people's labels of a random sample and a judge's scores of all.

        icalib.evaluate_judged("runs/default/bert-mine-0.1-s1", "export.json", "judge.parquet", data="pools/fresh")

    A DataError says that a file is not valid or not about these pools, or that too few are judged; a SettingError, that
    the run has learned from them.

    Args:
        run: a finished run, whose ranking is judged.
        judged: people's labels of at least 30 pools, as `label_import` takes them.
        judge: another ranker's or language model's scores of all pools of their split, as `calibrate` takes them but
            without labels; the query is the pool's id, the candidate its index from 0.
        data: pool folder; None: the run's own, whose test pools are judged.
        columns: the judge's own names of these columns, e.g. {"query": "pool_id", "score": "prob"}.
        place: where the run scores the pools.
    """
    import pyarrow as pa

    from icalib.api.session import session
    from icalib.core.component import validated
    from icalib.labelling.judged import Judgements
    from icalib.pipeline.finished import FinishedRun, iter_predictions
    from icalib.score_files.scores import Columns

    where, names = Place.of(place), validated(Columns, dict(columns or {}))
    finished = FinishedRun.open(local_path(run))
    pools = finished.config.data if data is None else local_path(data)
    read = Judgements.read(finished, pools, local_path(judged), local_path(judge), names)
    with session(where) as active:
        predictions = pa.concat_tables(iter_predictions(finished, pools, read.split, None, active.context))
    return read.evaluate(predictions)
