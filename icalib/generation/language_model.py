"""Sequence-to-sequence language models, fine-tuned to generate answers and questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from typing_extensions import override

from icalib.core.errors import SettingError
from icalib.core.files import give_usual_mode
from icalib.core.job import Artifact, ByContent
from icalib.core.seeding import child_seed
from icalib.data.batching import ordered_batches
from icalib.data.generated import TextKind
from icalib.data.schema import Pool
from icalib.data.selection import Selection
from icalib.data.splits import text_key
from icalib.encoders.backbone import backbone_digest, loading, pretrained, save_quietly
from icalib.encoders.transfer import to_device
from icalib.generation.generator import AbstractGenerator, Context, Task
from icalib.generation.retrieval import gold, is_like_gold, question_index, training_pools, training_rows, wrong_keys
from icalib.models.checkpoint import CHECKPOINT_VERSION
from icalib.models.model import Model
from icalib.models.precision import autocast
from icalib.training.examples import batched
from icalib.training.job import Training, TrainingJob
from icalib.training.settings import EpochsRequired, TrainingSettings

Ids = NDArray[np.int64]

_NO_TARGET = -100  # ignored by cross-entropy
_SPECIAL_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id")
_GENERATION_TOKENS = 16_384  # maximum number of padded tokens per generated batch, over all samples


@final
class LanguageModel(AbstractGenerator):
    """A language model fine-tuned to map a context to its right answer, and a right answer to the user's last
    utterance.

    GRAY (Lin et al. 2020) and BIG (Deng Y. et al. 2021) both fine-tune one on positive pairs; BART or T5, utterances
    that end with the end-of-sequence token and nucleus sampling (Holtzman et al. 2020) are our choice.
    """

    class Config(AbstractGenerator.Config):
        """Settings of a language model."""

        model: Annotated[str, Field(min_length=1), ByContent(backbone_digest)]
        """Name on the Hugging Face Hub such as facebook/bart-base, or a folder."""
        training: EpochsRequired = TrainingSettings(epochs=3, max_tokens_per_batch=4096)
        """Optimiser and schedule of fine-tuning; without validation, the last weights are kept."""
        max_source_tokens: int = Field(default=256, ge=2)
        """Maximum number of source tokens; contexts are truncated at their start, answers at their end."""
        max_target_tokens: int = Field(default=64, ge=2)
        """Maximum number of generated tokens."""
        top_p: float = Field(default=0.9, gt=0, le=1)
        """Probability of the nucleus that tokens are drawn from."""

        @override
        def title(self, wanted: TextKind) -> str:
            return f"{self.model}, fine-tuned (nucleus, p = {self.top_p:g})"

        def fine_tuned_tasks(self, wanted: TextKind) -> tuple[Task, ...]:
            """Return "answer", and for contexts of wrong answers also "question"."""
            return ("answer",) if wanted == "grey_answers" else ("answer", "question")

        def check(self) -> None:
            """Check that the model can be loaded and can generate text."""
            config = _load("AutoConfig", self.model)
            if not config.is_encoder_decoder or _load("AutoTokenizer", self.model).eos_token_id is None:
                raise SettingError(
                    f"`{self.model}` is not a sequence-to-sequence language model with an end-of-sequence token, so it "
                    "can't generate texts. Expected one such as facebook/bart-base."
                )
            positions = _positions(config)
            if positions is not None and positions <= self.max_target_tokens:
                raise SettingError(
                    f"generator.max_target_tokens is {self.max_target_tokens}, but `{self.model}` has only {positions} "
                    "positions. Set a smaller number."
                )

    def __init__(
        self, config: Config, *, data: Path, selection: Selection, models: Mapping[Task, Path], device: torch.device
    ) -> None:
        self.config, self._device = config, device
        self._writers = {task: Writer(str(path), config).to(device).eval() for task, path in models.items()}

    @override
    def grey_answers(self, pools: Sequence[Pool], number: int, seed: int) -> list[list[str]]:
        answers = self._answers(pools, number, seed)
        return [
            [text for text in texts if not is_like_gold(text, pool)] for pool, texts in zip(pools, answers, strict=True)
        ]

    @override
    def right_answers(self, pools: Sequence[Pool], seed: int) -> list[list[str]]:
        return self._answers(pools, 1, seed)

    @override
    def contexts(self, pools: Sequence[Pool], seed: int) -> list[list[Context]]:
        """Return the pool's context with the user's last utterance replaced by a question for each wrong answer."""
        wrong = dict.fromkeys(
            candidate for pool in pools for index, candidate in enumerate(pool.candidates) if index not in pool.right
        )
        written = self._write("question", [[answer] for answer in wrong], 1, seed)
        questions = {answer: texts[0] for answer, texts in zip(wrong, written, strict=True) if texts}
        return [
            [
                _asking(pool, questions[candidate]) if index not in pool.right and candidate in questions else ()
                for index, candidate in enumerate(pool.candidates)
            ]
            for pool in pools
        ]

    def _answers(self, pools: Sequence[Pool], number: int, seed: int) -> list[list[str]]:
        """Generate answers that aren't wrong candidates: such pairs are known to be wrong."""
        written = self._write("answer", [context_texts(pool) for pool in pools], number, seed)
        return [
            [text for text in texts if text_key(text) not in wrong]
            for texts, wrong in zip(written, map(wrong_keys, pools), strict=True)
        ]

    def _write(self, task: Task, sources: Sequence[Sequence[str]], number: int, seed: int) -> list[list[str]]:
        return self._writers[task].write(task, sources, number, seed=child_seed(seed, task), device=self._device)


def context_texts(pool: Pool) -> list[str]:
    """Return the texts of a pool's context."""
    return [utterance.text for utterance in pool.context]


def _asking(pool: Pool, question: str) -> Context:
    texts = context_texts(pool)
    texts[question_index(pool.context)] = question
    return tuple(texts)


class GeneratorJob(TrainingJob):
    """Fine-tunes a language model."""

    version: ClassVar[int] = CHECKPOINT_VERSION

    task: Task
    generator: LanguageModel.Config
    data: Artifact
    selection: Selection

    @property
    @override
    def loop(self) -> tuple[TrainingSettings, int]:
        return self.generator.training, child_seed(self.generator.seed, "fine-tuning", self.task)

    @override
    def build(self, device: torch.device) -> Training:
        writer = Writer(self.generator.model, self.generator)
        return Training(writer, WritingCurriculum(writer, self))


class TextPair(NamedTuple):
    """Token ids of a source and of the target to generate."""

    source: Ids
    target: Ids

    @property
    def length(self) -> int:
        """Number of tokens of both."""
        return len(self.source) + len(self.target)


class Writer(Model):
    """A language model with its tokenizer, by hub name or folder, for fine-tuning and generation."""

    def __init__(self, name: str, config: LanguageModel.Config) -> None:
        super().__init__()
        self.config = config
        self._tokenizer = _load("AutoTokenizer", name)
        self._tokenizer.split_special_tokens = True  # users' texts must not contain special tokens
        self._end: int = self._tokenizer.eos_token_id
        self._padding: int = self._end if self._tokenizer.pad_token_id is None else self._tokenizer.pad_token_id
        # Tokens that the tokenizer adds before every text: <s> for BART, none for T5.
        self._start: list[int] = [token for token in self._tokenizer("")["input_ids"] if token != self._end]
        self.network: Any = _load("AutoModelForSeq2SeqLM", name, dtype=torch.float32)
        self.network.generation_config = _special_tokens(self.network.generation_config)
        self._max_source = min(config.max_source_tokens, _positions(self.network.config) or config.max_source_tokens)
        self._max_target = config.max_target_tokens

    def encode(self, task: Task, source: Sequence[str], target: str) -> TextPair:
        """Return the token ids of a training pair."""
        ids = [*self._start, *self._ids([target])[0]][: self._max_target - 1]
        return TextPair(self._source(task, source), np.array([*ids, self._end], np.int64))

    def _source(self, task: Task, texts: Sequence[str]) -> Ids:
        """Return the ids of u₁ <eos> u₂ <eos> … u_t <eos>, after the tokenizer's start tokens."""
        ids = [token for part in self._ids(texts) for token in (*part, self._end)]
        room = self._max_source - len(self._start)
        return np.array([*self._start, *(ids[-room:] if task == "answer" else ids[:room])], np.int64)

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        return self._tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]

    def forward(self, pairs: Sequence[TextPair], device: torch.device) -> Tensor:
        """Compute the mean negative log-likelihood of each target's tokens [B], in nats."""
        ids_BL, mask_BL = self._padded([pair.source for pair in pairs], device, self._padding)
        targets_BL, _ = self._padded([pair.target for pair in pairs], device, _NO_TARGET)
        logits_BLV = self.network(input_ids=ids_BL, attention_mask=mask_BL, labels=targets_BL).logits
        nll_BL = nn.functional.cross_entropy(
            logits_BLV.float().transpose(1, 2), targets_BL, ignore_index=_NO_TARGET, reduction="none"
        )
        return nll_BL.sum(1) / (targets_BL != _NO_TARGET).sum(1)

    def _padded(self, ids: Sequence[Ids], device: torch.device, padding: int) -> tuple[Tensor, Tensor]:
        """Return ids and mask [B, L], padded to the maximum length L."""
        rows = [torch.from_numpy(tokens) for tokens in ids]
        ids_BL = pad_sequence(rows, batch_first=True, padding_value=padding)
        mask_BL = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        return to_device(ids_BL, device), to_device(mask_BL, device)

    @torch.inference_mode()
    def write(
        self, task: Task, sources: Sequence[Sequence[str]], number: int, *, seed: int, device: torch.device
    ) -> list[list[str]]:
        """Generate at most `number` distinct texts per source; fewer if some are empty or the same."""
        torch.manual_seed(seed)
        ids = [self._source(task, source) for source in sources]
        lengths = [len(tokens) + self._max_target for tokens in ids]
        written: list[list[str]] = [[] for _ in sources]
        for batch in ordered_batches(lengths, 64, _GENERATION_TOKENS // number):
            texts = self._generate([ids[int(index)] for index in batch], number, device)
            for row, index in enumerate(batch):
                own = [text.strip() for text in texts[row * number : (row + 1) * number]]
                written[int(index)] = list(dict.fromkeys(text for text in own if text))
        return written

    def _generate(self, sources: Sequence[Ids], number: int, device: torch.device) -> list[str]:
        ids_BL, mask_BL = self._padded(sources, device, self._padding)
        with autocast(device, self.config.training.precision):
            generated_BL = self.network.generate(
                input_ids=ids_BL, attention_mask=mask_BL, do_sample=True, top_p=self.config.top_p, top_k=0,
                num_return_sequences=number, max_new_tokens=self._max_target, pad_token_id=self._padding,
                eos_token_id=self._end,
            )  # fmt: skip
        return self._tokenizer.batch_decode(generated_BL, skip_special_tokens=True)

    def save(self, folder: Path, state: dict[str, Tensor]) -> None:
        """Write the network in the format of transformers, and its tokenizer."""
        weights = {name.removeprefix("network."): tensor for name, tensor in state.items()}
        save_quietly(self.network, folder, state_dict=weights)
        self._tokenizer.save_pretrained(folder)
        give_usual_mode(folder)


class WritingCurriculum:
    """Batches of right answers and questions of labelled pools, to fine-tune on."""

    def __init__(self, writer: Writer, job: GeneratorJob) -> None:
        self._job = job
        rows = training_rows(job.data.path, job.selection, "labelled")
        self._pairs = [self._pair(writer, pool) for pool in training_pools(job.data.path, rows)]

    def _pair(self, writer: Writer, pool: Pool) -> TextPair:
        if self._job.task == "answer":
            return writer.encode("answer", context_texts(pool), gold(pool))
        return writer.encode("question", [gold(pool)], pool.context[question_index(pool.context)].text)

    def batches(self, epoch: int) -> list[list[TextPair]]:
        """Return all batches of an epoch."""
        rng = np.random.default_rng(child_seed(self._job.loop_seed, "epoch", epoch))
        return batched(self._pairs, self._job.loop_settings, rng)

    def losses(
        self, forward: Callable[..., Any], examples: Sequence[TextPair], device: torch.device
    ) -> tuple[str, Tensor]:
        """Return the summed loss of the texts."""
        return f"{self._job.task}_text", forward(examples, device).sum()


def _load(kind: str, name: str, **options: Any) -> Any:
    """Load the config, tokenizer or network of a model; weights must be safetensors or weights-only files."""
    with loading(partial(_unusable, name)):
        return pretrained(kind, name, **options)


def _unusable(name: str, reason: str) -> SettingError:
    return SettingError(
        f"can't load the generator `{name}`: {reason} Expected a name on the Hugging Face Hub or a folder of a "
        "sequence-to-sequence language model (config.json, model.safetensors, tokenizer)."
    )


def _positions(config: Any) -> int | None:
    """Return how many tokens a model reads or writes at most; None without a limit."""
    return getattr(config, "max_position_embeddings", None)


def _special_tokens(found: Any) -> Any:
    """Return a checkpoint's special tokens without its decoding settings, such as BART's four beams."""
    from transformers import GenerationConfig

    return GenerationConfig(**{name: getattr(found, name) for name in _SPECIAL_TOKENS})
