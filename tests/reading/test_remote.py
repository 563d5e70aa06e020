"""Inputs and outputs on an object store: an S3 of moto's on this machine; lost connections, and what is not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import osbert
from osbert.interop.hub import locate
from osbert.reading import remote
from osbert.reading.inputs import find_inputs
from osbert.reading.remote import ObjectAddress, local_copy, local_output
from osbert.reading.remote_cache import hold, make_room
from refusals import refusal

fsspec = pytest.importorskip("fsspec", reason="the extra 'remote' is not installed")
pytest.importorskip("s3fs", reason="the extra 'remote' is not installed")
moto = pytest.importorskip("moto.server", reason="moto is not installed")
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def s3(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a file system with an empty bucket; the cache is a folder of the test's own."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("OSBERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(remote, "TRIES", 2)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    files = fsspec.filesystem("s3", use_listings_cache=False)
    if files.exists("box"):
        files.rm("box", recursive=True)
    files.mkdir("box")
    return files


def copies(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_copy_is_that_of_the_content_now(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "BLOCK", 4)
    s3.pipe_file("box/deep/a.csv", b"text\ngood\n")
    first = local_copy("s3://box/deep/a.csv")
    assert first.name == "a.csv" and first.read_bytes() == b"text\ngood\n"
    assert local_copy(Path("s3://box/deep/a.csv")) == first, "a path of the command line, which has one slash"
    s3.pipe_file("box/deep/a.csv", b"text\nbad\n")
    assert local_copy("s3://box/deep/a.csv").read_bytes() == b"text\nbad\n"
    s3.pipe_file("box/deep/more/b.txt", b"")
    folder = local_copy("s3://box/deep/")
    assert (folder / "more" / "b.txt").read_bytes() == b"" and (folder / "a.csv").read_bytes() == b"text\nbad\n"
    assert copies(local_copy("s3://box/deep", without=("more",))) == ["a.csv"]
    assert [source.path.name for source in find_inputs(["s3://box/deep/more/b.txt"])] == ["b.txt"]


def test_a_run_and_a_table_there_and_back(s3: Any, runs: dict[str, Path], tmp_path: Path) -> None:
    s3.put(str(runs["classifier"]) + "/", "box/run/", recursive=True)
    s3.pipe_file("box/run/checkpoints/step-1/weights", b"not fetched")
    s3.pipe_file("box/in.csv", b"text\na good film\n")
    folder = locate("s3://box/run").path
    assert not (folder / "checkpoints").exists()
    counts = osbert.predict("s3://box/run", "s3://box/in.csv", out="s3://box/out/said.csv")  # type: ignore[arg-type]
    assert counts.rows == 1
    (tmp_path / "in.csv").write_bytes(b"text\na good film\n")
    osbert.predict(runs["classifier"], tmp_path / "in.csv", out=tmp_path / "said.csv")
    assert s3.cat_file("box/out/said.csv") == (tmp_path / "said.csv").read_bytes()
    vectors = osbert.embed("s3://box/run", "s3://box/in.csv", out="s3://box/vectors.npy")
    assert vectors.shape == (1, 16) and str(vectors.path) == "s3:/box/vectors.npy"
    assert {"box/vectors.npy", "box/vectors.rows.npz"} <= set(s3.find("box"))
    osbert.explain("s3://box/run", "s3://box/in.csv", out="s3://box/why", points=4, check=False)
    assert {"box/why/rows.csv", "box/why/report.html"} <= set(s3.find("box"))
    assert not any(path.is_file() for path in (tmp_path / "cache" / "outputs").rglob("*")), "uploaded, then removed"


def test_an_output_that_is_not_finished_is_not_uploaded(s3: Any) -> None:
    with pytest.raises(KeyboardInterrupt), local_output("s3://box/out.txt") as place:
        place.write_text("half")
        raise KeyboardInterrupt
    assert s3.find("box") == []
    with local_output("s3://box/out.txt") as place:
        assert place.read_text() == "half", "the same command goes on"
    assert s3.cat_file("box/out.txt") == b"half"


def test_a_connection_that_is_lost(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.pipe_file("box/a.txt", b"0123456789")
    monkeypatch.setattr(remote, "BLOCK", 4)
    whole, left = s3.cat_file, [1]  # of the instance, which fsspec keeps

    def failing(path: str, start: int, end: int) -> bytes:
        if start == 4 and left[0] > 0:
            left[0] -= 1
            raise ConnectionError("reset by peer")
        return bytes(whole(path, start=start, end=end))[: 1 if left[0] < 0 else None]

    monkeypatch.setattr(s3, "cat_file", failing)
    assert local_copy("s3://box/a.txt").read_bytes() == b"0123456789", "one request again, not all"
    s3.pipe_file("box/a.txt", b"9876543210")
    for left[0] in (2, -1):  # lost twice; cut short
        with refusal("not-downloaded", "s3://box/a.txt"):
            local_copy("s3://box/a.txt")
    assert copies(tmp_path / "cache") == ["a.txt"], "that of before: no half of one"


def test_an_object_that_changes_meanwhile(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.pipe_file("box/a.txt", b"0123")
    block = remote._block

    def changing(*given: Any) -> bytes:
        found = block(*given)
        s3.pipe_file("box/a.txt", b"4567")
        return found

    monkeypatch.setattr(remote, "_block", changing)
    with refusal("file-changed", "s3://box/a.txt"):
        local_copy("s3://box/a.txt")
    assert copies(tmp_path / "cache") == []


def test_the_cache_is_bounded(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSBERT_CACHE_GB", "1e-8")  # ten bytes
    monkeypatch.setattr(remote, "hold", lambda entry: None)
    for number, name in enumerate("abc"):
        s3.pipe_file(f"box/{name}", b"four")
        os.utime(local_copy(f"s3://box/{name}").parent, (number, number))
    assert copies(tmp_path / "cache") == ["b", "c"], "the oldest is gone"
    monkeypatch.undo()
    monkeypatch.setenv("OSBERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OSBERT_CACHE_GB", "1e-8")
    for path in (tmp_path / "cache").glob("*/b"):
        hold(path.parent)
    make_room(6, "x")
    assert copies(tmp_path / "cache") == ["b"], "what is read stays"
    with refusal("too-large", "OSBERT_CACHE_GB"):
        make_room(11, "x")
    monkeypatch.setenv("OSBERT_CACHE_GB", "much")
    with refusal("invalid-value", "much"):
        make_room(1, "x")


def test_what_cannot_be_read(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("s3://box/none.csv", "s3://nobox/a.csv"):
        with refusal("missing-file", url):
            local_copy(url)
    with refusal("invalid-value", "s3://box"):
        local_copy("s3://box")
    with refusal("missing-file", "s3://nobox/a.csv"), local_output("s3://nobox/a.csv"):
        pytest.fail("no work is done for a bucket that is not there")
    monkeypatch.setattr(s3, "find", lambda *_, **__: {"box/up/../../x": {"size": 1, "type": "file"}})
    s3.pipe_file("box/up/x", b"x")
    with refusal("wrong-format", "../x"):
        local_copy("s3://box/up")
    assert ObjectAddress.of(tmp_path) is None


def test_without_credentials_or_a_server(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(*_: Any, **__: Any) -> None:
        from botocore.exceptions import NoCredentialsError

        raise NoCredentialsError

    def lost(*_: Any, **__: Any) -> None:
        raise ConnectionError("reset by peer")

    with monkeypatch.context() as patched, refusal("not-permitted", "s3://box/a.csv"):
        patched.setattr(s3, "info", without)
        local_copy("s3://box/a.csv")
    with refusal("not-uploaded", "s3://box/a.csv"), local_output("s3://box/a.csv") as place:
        place.write_text("x")
        monkeypatch.setattr(s3, "put_file", lost)


def test_addresses_are_the_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path, which a file may have named, is no address of a model; a local folder of that name comes first."""
    assert locate(Path("s3://box/run")).path == Path("s3://box/run")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s3:" / "box").mkdir(parents=True)
    assert local_copy("s3:/box") == Path("s3:/box")
    with refusal("unknown-scheme", "ftp://"):
        local_copy("ftp://box/a.csv")
    monkeypatch.setitem(remote.SCHEMES, "gs", ("no_such_library", "pip install gcsfs"))
    with refusal("missing-library", "pip install gcsfs"):
        local_copy("gs://box/a.csv")
