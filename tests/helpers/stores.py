"""An object store that is a folder, machines with mirrors of their own, and stores that fail for a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import FileSystem, FSSpecHandler, PyFileSystem

from icalib.core import storage
from icalib.core.storage import local_path


class Machines:
    """Goes from machine to machine; each has its own mirror of one store."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._monkeypatch = folder, monkeypatch
        self.uri = f"fsspec+file://{folder}/store"

    def there(self, name: str) -> Path:
        """Where the store keeps it."""
        return self.folder / "store" / name

    def on(self, machine: str, name: str) -> Path:
        """From now on this is the machine; its local path of a name."""
        self._monkeypatch.setenv(storage.CACHE, str(self.folder / machine))
        return local_path(f"{self.uri}/{name}")

    def fails(self, which: Callable[[str, str], bool]) -> list[tuple[str, str]]:
        """From now on operations (kind, path) fail where `which` says so; the list grows by what is tried."""
        handler = FailingStore(which)
        self._monkeypatch.setattr(storage, "filesystem_of", lambda uri: (PyFileSystem(handler), ""))
        return handler.tried


class FailingStore(FSSpecHandler):
    """The machine's files as a store, whose operations (kind, path) fail where `which` says so."""

    def __init__(self, which: Callable[[str, str], bool]) -> None:
        inner, _ = FileSystem.from_uri("fsspec+file:///")
        super().__init__(inner.handler.fs)
        self._which, self._lock = which, threading.Lock()
        self.tried: list[tuple[str, str]] = []

    def _try(self, kind: str, path: str) -> None:
        with self._lock:
            self.tried.append((kind, path))
            if self._which(kind, path):
                raise OSError(f"AWS Error NETWORK_CONNECTION during {kind} of {path}")

    def get_file_info(self, paths: list[str]) -> Any:
        self._try("look", paths[0])
        return super().get_file_info(paths)

    def open_input_stream(self, path: str) -> Any:
        self._try("read", path)
        return super().open_input_stream(path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        self._try("write", path)
        return super().open_output_stream(path, metadata)

    def delete_file(self, path: str) -> None:
        self._try("delete", path)
        super().delete_file(path)
