"""A local object store that speaks S3, behind a door that can be shut."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from distributed.drivers import wait_for
from pyarrow.fs import FileSystem


class Bucket:
    """A server with one bucket; `environment` tells where it is."""

    uri = "s3://bucket"

    def __init__(self, log: Path) -> None:
        places = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        program = shutil.which("moto_server", path=places)
        assert program is not None, "moto is not installed: it is one of the `dev` extra's packages"
        port = _free_port()
        with log.open("wb") as file:
            self._server = subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stdout=file, stderr=file)
        wait_for(lambda: _answers(port), lambda: self._server.poll() is None, seconds=60)
        self._door = Door(port)
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._door.port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }

    def create(self) -> None:
        """Make the bucket; the environment must be set."""
        filesystem, _ = FileSystem.from_uri(f"{self.uri}?allow_bucket_creation=true")
        filesystem.create_dir("bucket")

    def away_for(self, seconds: float) -> None:
        """Nobody reaches the server for a while; who is connected is cut off."""
        self._door.shut()
        time.sleep(seconds)
        self._door.open()

    def close(self) -> None:
        self._door.shut()
        self._server.kill()
        self._server.wait()


class Door:
    """Forwards connections to a port, while it is open."""

    def __init__(self, inner_port: int) -> None:
        self._inner_port, self.port = inner_port, _free_port()
        self._open: list[socket.socket] = []
        self.open()

    def open(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self._open.append(listener)
        threading.Thread(target=self._listen, args=[listener], daemon=True).start()

    def shut(self) -> None:
        for end in self._open:
            _hang_up(end)
        self._open.clear()

    def _listen(self, listener: socket.socket) -> None:
        while True:
            try:
                outer, _ = listener.accept()
            except OSError:
                return
            inner = socket.create_connection(("127.0.0.1", self._inner_port))
            self._open += [outer, inner]
            for source, target in ((outer, inner), (inner, outer)):
                threading.Thread(target=_forward, args=[source, target], daemon=True).start()


def _forward(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while block := source.recv(1 << 16):
            target.sendall(block)
    _hang_up(source)
    _hang_up(target)


def _hang_up(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _answers(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0
