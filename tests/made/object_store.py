"""An S3 of moto's on this machine, as fixtures: a conftest imports `server` and `s3`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

QUIET = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
"""The mark of tests that use the fixtures: the warnings of the libraries."""


def variables(server: str, cache: Path) -> dict[str, str]:
    """Return the environment of a process that uses a server as its S3, with a cache folder."""
    return {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "OSBERT_CACHE": str(cache),
    }


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Return the address of a server; one for all tests, since fsspec keeps its file systems."""
    pytest.importorskip("s3fs", reason="the extra 'remote' is not installed")
    moto = pytest.importorskip("moto.server", reason="moto is not installed")
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def s3(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a file system with an empty bucket; the cache is a folder of the test's own."""
    import fsspec

    from osbert_lab.object_stores import addresses

    for name, value in variables(server, tmp_path / "cache").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(addresses, "TRIES", 2)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    files = fsspec.filesystem("s3", use_listings_cache=False)
    if files.exists("box"):
        files.rm("box", recursive=True)
    files.mkdir("box")
    return files
