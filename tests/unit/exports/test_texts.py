"""Pairs of texts whose tokens are those that icalib reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.tiny_models import tiny_ranker

import icalib
from icalib.core.errors import DataError, SettingError
from icalib.core.files import write_json
from icalib.data.encoding import Budget
from icalib.encoders.backbone import Tokenizer
from icalib.exports.stock import write_tokenizer
from icalib.exports.texts import EXPORT_FILE, stock_tokenizer, texts_of

CONTEXT = ["My printer hums!", "which (model)?", "the laser printer, v2.1; it prints [SEP] blank pages"]
CANDIDATES = ["restart it.", "seat the [CLS] fuser[SEP]unit"]


@pytest.mark.parametrize(("separated", "separator"), [(False, " "), (True, " [SEP] ")])
def test_a_stock_tokenizer_gives_the_same_ids(separated: bool, separator: str, tiny_bert: Path) -> None:
    layout, tokenize = tiny_ranker(tiny_bert, turn_separators=separated).layout, Tokenizer(str(tiny_bert))
    stock = stock_tokenizer(str(tiny_bert), layout, has_segments=True)
    texts = texts_of(layout, tokenize, stock, 3)
    assert texts.utterance_separator == separator
    pairs = texts.pairs(stock, ["left out", *CONTEXT], CANDIDATES)
    found = stock(*map(list, zip(*pairs, strict=True)), truncation=True)
    ids_of_context, ids_of_candidates = ([np.array(ids) for ids in tokenize(some)] for some in (CONTEXT, CANDIDATES))
    inputs = layout.inputs(ids_of_context, None, ids_of_candidates)
    assert found["input_ids"] == [ids.tolist() for ids, _ in inputs]
    assert found["token_type_ids"] == [[0] * start + [1] * (len(ids) - start) for ids, start in inputs]


def test_a_users_text_separates_no_utterances(tiny_roberta: Path) -> None:
    layout, tokenize = tiny_ranker(tiny_roberta, turn_separators=True).layout, Tokenizer(str(tiny_roberta))
    stock = stock_tokenizer(str(tiny_roberta), layout, has_segments=False)
    texts = texts_of(layout, tokenize, stock, 3)
    (plain,) = stock(*map(list, zip(*texts.pairs(stock, ["it hums", "which?"], ["ok"]), strict=True)))["input_ids"]
    for special in ("</s>", "<s>", "<mask>"):
        pairs = texts.pairs(stock, [f"it{special}hums", "which?"], [f"{special}ok {special}"])
        (found,) = stock(*map(list, zip(*pairs, strict=True)))["input_ids"]
        assert [found.count(token) for token in stock.all_special_ids] == [
            plain.count(token) for token in stock.all_special_ids
        ]


def test_long_texts_keep_whole_words_of_the_contexts_end_and_the_candidates_start(tiny_bert: Path) -> None:
    layout, tokenize = tiny_ranker(tiny_bert).layout, Tokenizer(str(tiny_bert))
    stock = stock_tokenizer(str(tiny_bert), layout, has_segments=True)
    texts, limits = texts_of(layout, tokenize, stock, 3), layout.limits
    long = " ".join(f"printer{number} unusualword" for number in range(60))
    ((context, candidate),) = texts.pairs(stock, [long], [long])
    (all_ids,) = tokenize([long])
    kept = tokenize([context])[0]
    assert long.endswith(context)
    assert all_ids[-len(kept) :] == kept
    assert limits.max_context_tokens - 12 < len(kept) <= limits.max_context_tokens
    assert tokenize([candidate])[0] == all_ids[: limits.max_candidate_tokens]
    assert len(stock(context, candidate, truncation=True)["input_ids"]) <= stock.model_max_length
    stock_ids = stock(long, CANDIDATES[0], truncation=True)["input_ids"]
    assert stock_ids[-len(tokenize([CANDIDATES[0]])[0]) - 1 : -1] == tokenize([CANDIDATES[0]])[0]


def test_separators_count_as_one_token_when_a_long_context_is_cut(tiny_bert: Path, tmp_path: Path) -> None:
    layout, tokenize = tiny_ranker(tiny_bert, turn_separators=True).layout, Tokenizer(str(tiny_bert))
    stock = stock_tokenizer(str(tiny_bert), layout, has_segments=True)
    write_tokenizer(tmp_path, stock)
    texts = texts_of(layout, tokenize, stock, 40)
    write_json(tmp_path / EXPORT_FILE, {"texts": texts.model_dump(mode="json")})
    turns = ["ok"] * 40
    ((context, _),) = icalib.pair_texts(tmp_path, turns, ["yes"])
    expected = layout.context_ids([np.array(ids) for ids in tokenize(turns)], None)
    assert stock(context, add_special_tokens=False)["input_ids"] == expected.tolist()


def test_another_ranker_at_the_same_path_is_read_anew(tiny_bert: Path, tiny_roberta: Path, tmp_path: Path) -> None:
    long = "the laser printer prints blank pages " * 40
    for backbone, is_bert in ((tiny_bert, True), (tiny_roberta, False)):
        layout = tiny_ranker(backbone, turn_separators=True).layout
        stock = stock_tokenizer(str(backbone), layout, has_segments=is_bert)
        texts = texts_of(layout, Tokenizer(str(backbone)), stock, 3)
        write_tokenizer(tmp_path, stock)
        write_json(tmp_path / EXPORT_FILE, {"texts": texts.model_dump(mode="json")})
        assert icalib.pair_texts(tmp_path, [long], [long]) == texts.pairs(stock, [long], [long])


def test_a_folder_that_was_not_exported_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="is not an exported ranker"):
        icalib.pair_texts(tmp_path / "nowhere", ["ok"], ["yes"])


def test_a_graph_without_texts_says_that_it_reads_ids(tmp_path: Path) -> None:
    write_json(tmp_path / EXPORT_FILE, {"texts": None})
    with pytest.raises(SettingError, match=r"reads token ids.*README\.md"):
        icalib.pair_texts(tmp_path, ["ok"], ["yes"])


def test_a_bi_encoders_candidates_may_be_longer_than_its_contexts(tiny_bert: Path) -> None:
    budget = Budget(max_context_tokens=8, max_candidate_tokens=32)
    layout, tokenize = tiny_ranker(tiny_bert, budget=budget).layout, Tokenizer(str(tiny_bert))
    stock = stock_tokenizer(str(tiny_bert), layout, has_segments=True, of_pairs=False)
    ((_, candidate),) = texts_of(layout, tokenize, stock, 3).pairs(stock, ["ok"], ["restart it. " * 30])
    (ids,) = tokenize([candidate])
    assert len(ids) == 32
    assert stock(candidate, truncation=True)["input_ids"] == layout.single(np.array(ids)).tolist()


def test_empty_texts_are_refused(tiny_bert: Path) -> None:
    layout = tiny_ranker(tiny_bert).layout
    stock = stock_tokenizer(str(tiny_bert), layout, has_segments=True)
    texts = texts_of(layout, Tokenizer(str(tiny_bert)), stock, 3)
    for context, candidates in (([], CANDIDATES), ([" "], CANDIDATES), (CONTEXT, [""]), ([{"txt": "a"}], CANDIDATES)):
        with pytest.raises(DataError, match=r"field `(context|candidates)"):
            texts.pairs(stock, context, candidates)
