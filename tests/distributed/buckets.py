"""A local object store that speaks S3."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from distributed.drivers import wait_for
from helpers.ports import free_port
from pyarrow.fs import FileSystem


class Bucket:
    """A server with one bucket; `environment` tells where it is."""

    uri = "s3://bucket"

    def __init__(self, log: Path) -> None:
        places = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        program = shutil.which("moto_server", path=places)
        assert program is not None, "moto is not installed: it is one of the `dev` extra's packages"
        port = free_port()
        with log.open("wb") as file:
            self._server = subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stdout=file, stderr=file)
        wait_for(lambda: _answers(port), lambda: self._server.poll() is None, seconds=60)
        self.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }

    def create(self) -> None:
        """Make the bucket; the environment must be set."""
        filesystem, _ = FileSystem.from_uri(f"{self.uri}?allow_bucket_creation=true")
        filesystem.create_dir("bucket")

    def close(self) -> None:
        self._server.kill()
        self._server.wait()


def _answers(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0
