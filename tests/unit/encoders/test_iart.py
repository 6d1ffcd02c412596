from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.word_pairs import PAIRS, Pair, pair_batch
from torch import Tensor, nn

from icalib.data.encoding import Budget
from icalib.encoders.backbone import Tokenizer
from icalib.encoders.iart import IART, WIDTHS, Block, Convolutions, IntentAttention, TextCNN
from icalib.encoders.transformer import Batch

WORDS = 12


def encoder(backbone: Path, num_intents: int = 3, **changes: Any) -> IART:
    torch.manual_seed(0)
    settings = {
        "backbone": str(backbone),
        "budget": Budget(max_context_tokens=80, max_candidate_tokens=WORDS),
        "max_words": WORDS,
        "embedding_size": 16,
        "num_blocks": 2,
        "intent_filters": 4,
    }
    made = IART.Config.model_validate({**settings, **changes}).build(num_intents=num_intents)
    with torch.no_grad():
        if made.intent_attention.weight is not None:
            made.intent_attention.weight.normal_()
    return made.eval()


def batch(made: IART, pairs: list[Pair]) -> Batch:
    config = made.config
    layout = Tokenizer(config.backbone).layout(config.budget, made.max_length, made.vocabulary, turn_separators=True)
    return pair_batch(layout, pairs)


def features(made: IART, pairs: list[Pair]) -> Tensor:
    with torch.inference_mode():
        return made(batch(made, pairs)).features_BD


def test_a_block_is_attention_and_two_layers_each_with_residual_and_norm() -> None:
    torch.manual_seed(0)
    block = Block(8)
    queries, keys = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 4, 8)
    mask = torch.tensor([True, True, False, True]).expand(2, 3, 4)
    weights = (torch.einsum("btid,btjd->btij", queries, keys) / 8**0.5)[..., [0, 1, 3]].softmax(-1)
    attended = torch.einsum("btij,btjd->btid", weights, keys[:, :, [0, 1, 3]])
    states = nn.functional.layer_norm(queries + attended, (8,))
    inner = torch.relu(states @ block.inner.weight.T + block.inner.bias)
    expected = nn.functional.layer_norm(states + inner @ block.outer.weight.T + block.outer.bias, (8,))
    torch.testing.assert_close(block(queries, keys, mask), expected)


def test_the_papers_shape_has_8464_features() -> None:
    assert Convolutions(10, 16).width(6, 200) == 8464


def same_pooled(tensor: Tensor) -> Tensor:
    """TensorFlow's max_pool3d with SAME: of the places that are missing, half (rounded down) stand before the first."""
    for axis in (2, 3, 4):
        missing = -tensor.shape[axis] % 3
        shapes = [[side if place == axis else size for place, size in enumerate(tensor.shape)]
                  for side in (missing // 2, missing - missing // 2)]  # fmt: skip
        before, behind = (torch.full(shape, -torch.inf) for shape in shapes)
        tensor = torch.cat([before, tensor, behind], axis).unflatten(axis, (-1, 3)).amax(axis + 1)
    return tensor


@pytest.mark.parametrize("size", [12, 13, 50, 61])
@pytest.mark.parametrize(("rows", "columns"), [(1, 12), (5, 3), (9, 10)])
def test_positions_left_out_change_nothing(size: int, rows: int, columns: int) -> None:
    torch.manual_seed(0)
    network = Convolutions(2, 3)
    similarity = torch.randn(2, 2, 4, rows, columns)
    whole = nn.functional.pad(similarity, (0, size - columns, 0, size - rows))
    for layer in (network.first, network.second):
        whole = same_pooled(nn.functional.elu(layer(whole)))
    seen: list[Tensor] = []
    network.first.register_forward_hook(lambda *call: seen.append(call[1][0]))
    short = network(similarity, size)
    assert (seen[0].shape[3] < size) == (size > 13)
    torch.testing.assert_close(short, whole.flatten(1))


def test_attention_logits_are_bilinear_in_the_intents() -> None:
    turns, candidate, real = torch.rand(1, 2, 3), torch.rand(1, 3), torch.ones(1, 2, dtype=torch.bool)
    attention = IntentAttention(3)
    attention.weight = nn.Parameter(torch.randn(3, 3))
    expected = torch.stack([turns[0, t] @ attention.weight @ candidate[0] for t in range(2)]).softmax(0)
    torch.testing.assert_close(attention(turns, candidate, real)[0], expected)


def test_limit_uniform_attention_is_dam_up_to_one_over_the_turns(tiny_bert: Path) -> None:
    """The limit M = 0: every similarity is divided by the number of turns, and no intent plays a part."""
    made = encoder(tiny_bert)
    assert made.intent_attention.weight is not None
    with torch.no_grad():
        made.intent_attention.weight.zero_()
    without = encoder(tiny_bert, num_intents=0)
    without.load_state_dict({name: tensor for name, tensor in made.state_dict().items() if "intent" not in name})
    torch.testing.assert_close(features(made, PAIRS), features(without, PAIRS))
    seen: list[Tensor] = []
    without.matching.register_forward_hook(lambda *call: seen.append(call[2]))
    made.convolutions.register_forward_hook(lambda *call: seen.append(call[1][0]))
    with torch.inference_mode():
        without(batch(without, PAIRS))
        made(batch(made, PAIRS))
    num_turns = torch.tensor([3.0, 1.0, 2.0])[:, None, None, None, None]
    torch.testing.assert_close(seen[1] * num_turns, seen[0])


def test_the_last_turns_the_end_of_a_turn_and_the_start_of_the_candidate_are_read(tiny_bert: Path) -> None:
    made = encoder(tiny_bert, max_turns=2, max_words=3)
    long: Pair = ([[9, 9, 9], [5, 6, 10, 11, 12], [20]], [30, 31, 32, 33, 34])
    short: Pair = ([[10, 11, 12], [20]], [30, 31, 32])
    torch.testing.assert_close(features(made, [long]), features(made, [short]))


def test_texts_without_words_leave_finite_numbers_and_all_weights_learn_but_the_classifiers(tiny_bert: Path) -> None:
    made = encoder(tiny_bert)
    pairs: list[Pair] = [([[], []], [40]), ([[10]], []), PAIRS[0]]
    evaluated = features(made, pairs)
    assert torch.isfinite(evaluated).all()
    trained = made.train()(batch(made, pairs)).features_BD
    torch.testing.assert_close(trained, evaluated)  # the classifier's dropout stays off
    trained.square().sum().backward()
    frozen = {name for name, parameter in made.named_parameters() if parameter.grad is None}
    assert frozen == {name for name, _ in made.named_parameters() if name.startswith("intent_classifier.")}
    assert all(torch.isfinite(p.grad).all() for p in made.parameters() if p.grad is not None)


@pytest.fixture
def network() -> TextCNN:
    torch.manual_seed(0)
    return TextCNN(20, 6, num_filters=4, num_classes=3).eval()


def test_features_are_the_filters_maxima_over_the_words(network: TextCNN) -> None:
    ids = torch.tensor([7, 3, 9, 1])
    words = network.embedding(ids)
    features = []
    for span, convolve in zip(WIDTHS, network.filters, strict=True):
        beside = torch.zeros(span - 1, 6)
        padded = torch.cat([beside, words, beside])
        places = [padded[start : start + span] for start in range(len(ids) + span - 1)]
        responses = [(convolve.weight * window.T).sum((1, 2)) + convolve.bias for window in places]
        features.append(torch.stack(responses).relu().amax(0))
    expected = network.output(torch.cat(features))
    torch.testing.assert_close(network(ids[None], torch.ones(1, 4, dtype=torch.bool))[0], expected)


def test_padding_and_other_texts_change_nothing(network: TextCNN) -> None:
    texts = [[5, 6], [], [1, 2, 3, 4, 5, 6, 7]]
    mask = torch.tensor([[place < len(text) for place in range(9)] for text in texts])
    together = network(torch.tensor([text + [19] * (9 - len(text)) for text in texts]), mask)
    for text, logits in zip(texts, together, strict=True):
        if text:
            alone = network(torch.tensor([text]), torch.ones(1, len(text), dtype=torch.bool))
            torch.testing.assert_close(alone[0], logits)
    torch.testing.assert_close(together[1], network.output.bias)  # a text without words
