"""Inputs and outputs on an object store: an S3 of moto's on this machine; lost connections, and what is not there."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import osbert
from object_store import QUIET
from osbert.console.model_downloads import resolve_model
from osbert.errors import UserError
from osbert.inference.vectors.reading import open_vectors
from osbert.interop.hub import default_out, locate
from osbert.lock import claim
from osbert.reading.inputs import find_inputs
from osbert.remote import address_of, hold, local_copy, local_output, reading_copies
from osbert_lab.object_stores import addresses
from osbert_lab.object_stores.addresses import ObjectAddress, StoredObject
from osbert_lab.object_stores.cache import make_room, require_copy
from refusals import refusal

pytestmark = QUIET


def copies(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_copy_is_that_of_the_content_now(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "BLOCK", 4)
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
    assert default_out(folder, "-onnx") == Path("run-onnx"), "not in the cache"
    assert resolve_model("s3://box/run") == f"run={folder}" and resolve_model("mine=s3://box/run") == f"mine={folder}"
    counts = osbert.predict("s3://box/run", "s3://box/in.csv", out="s3://box/out/said.csv")  # type: ignore[arg-type]
    assert counts.rows == 1
    (tmp_path / "in.csv").write_bytes(b"text\na good film\n")
    osbert.predict(runs["classifier"], tmp_path / "in.csv", out=tmp_path / "said.csv")
    assert s3.cat_file("box/out/said.csv") == (tmp_path / "said.csv").read_bytes()
    vectors = osbert.embed("s3://box/run", "s3://box/in.csv", out="s3://box/vectors.npy")
    assert vectors.shape == (1, 16) and str(vectors.path) == "s3:/box/vectors.npy"
    assert {"box/vectors.npy", "box/vectors.rows.npz"} <= set(s3.find("box"))
    s3.get("box/vectors.npy", str(tmp_path))
    s3.get("box/vectors.rows.npz", str(tmp_path))
    settings = open_vectors(tmp_path / "vectors.npy").settings
    assert (settings["model"], settings["file"]) == ("s3://box/run", "s3://box/in.csv")
    assert "-> s3://box/vectors.npy" in next(vectors.describe())
    s3.pipe_file("box/labelled.csv", b"text,label\na good film,pos\n")
    assert osbert.evaluate("s3://box/run", data="s3://box/labelled.csv")["accuracy"] in (0, 1)
    with refusal("missing-file", "s3://box/none.csv"):
        osbert.finetune("classify", model=runs["encoder"], data="s3://box/none.csv", out=tmp_path / "tuned")
    for dev in ("dev", "classify.dev"):
        with refusal("missing-file", "s3://box/none.csv"):
            call = {"data": "s3://box/labelled.csv", dev: "s3://box/none.csv", "out": tmp_path / "tuned"}
            osbert.finetune("classify", model=runs["encoder"], **call)
    osbert.explain("s3://box/run", "s3://box/in.csv", out="s3://box/why", points=4, check=False)
    assert {"box/why/rows.csv", "box/why/report.html"} <= set(s3.find("box"))
    assert not any(path.is_file() for path in (tmp_path / "cache" / "outputs").rglob("*")), "uploaded, then removed"


def test_an_output_replaces_no_input(s3: Any) -> None:
    for out, file in (("s3://box/a.csv", Path("s3://box/a.csv")), ("s3://box/why/", "s3://box/why/rows.csv")):
        with refusal("output-is-input", str(out)), local_output(out, inputs=["here.csv", file]):
            pytest.fail("no work is done")


def test_an_upload_is_tried_again_and_its_output_kept(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put, failures = s3.put_file, [1]

    def failing(*given: str) -> None:
        if failures[0]:
            failures[0] -= 1
            raise ConnectionError("reset by peer")
        put(*given)

    monkeypatch.setattr(s3, "put_file", failing)
    for name, lost in (("a.csv", 1), ("b.csv", 2)):
        with ExitStack() as held:
            if lost > 1:
                held.enter_context(refusal("not-uploaded", str(tmp_path / "cache" / "outputs")))
            place = held.enter_context(local_output(f"s3://box/{name}"))
            place.write_text(name)
            (place.parent / ".tasks").mkdir()
            (place.parent / ".tasks" / "part").write_text("not uploaded")
            with refusal("output-in-use"), local_output(f"s3://box/{name}"):
                pytest.fail("one process writes at a time")
            failures[0] = lost
        assert place.exists() == (lost > 1)
    assert s3.find("box") == ["box/a.csv"]


def test_a_folder_of_keys(s3: Any) -> None:
    """Empty objects that stand for folders are passed over; names may be any text; times are those of the store."""
    for key in ("up/", "up/more/", "up/marked", "up/marked/ä b.txt", "up/more/a=b?.txt"):
        s3.call_s3("put_object", Bucket="box", Key=key, Body=b"" if key[-1] != "t" else b"text")
    folder = local_copy("s3://box/up/")
    assert copies(folder) == ["a=b?.txt", "ä b.txt"] and folder == local_copy("s3://box/up")
    [one] = folder.glob("more/*")
    changed = s3.info("box/up/more/a=b?.txt")["LastModified"].timestamp()
    assert one.stat().st_mtime == changed
    assert local_copy("s3://box/up/marked/ä b.txt").read_bytes() == b"text"
    s3.call_s3("put_object", Bucket="box", Key="up/marked", Body=b"no folder")
    with refusal("wrong-format", "'marked'"):
        local_copy("s3://box/up")
    assert StoredObject.of({"size": 1, "blob_id": "a"}).modified != StoredObject.of({"size": 1, "oid": "b"}).modified


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
    monkeypatch.setattr(addresses, "BLOCK", 4)
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
    block = addresses._block

    def changing(*given: Any) -> bytes:
        found = block(*given)
        s3.pipe_file("box/a.txt", b"4567")
        return found

    monkeypatch.setattr(addresses, "_block", changing)
    with refusal("file-changed", "s3://box/a.txt"):
        local_copy("s3://box/a.txt")
    assert copies(tmp_path / "cache") == []


def test_the_cache_is_bounded(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSBERT_CACHE_GB", "1e-8")  # ten bytes
    monkeypatch.setattr(addresses, "hold", lambda entry, address: entry.is_dir())
    for number, name in enumerate("abc"):
        s3.pipe_file(f"box/{name}", b"four")
        os.utime(local_copy(f"s3://box/{name}").parent, (number, number))
    assert copies(tmp_path / "cache") == ["b", "c"], "the oldest is gone"
    monkeypatch.undo()
    monkeypatch.setenv("OSBERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OSBERT_CACHE_GB", "1e-8")
    with reading_copies():
        (held,) = (path.parent for path in (tmp_path / "cache").glob("*/b"))
        assert hold(held, "s3://box/b")
        make_room(6, "x")
        assert copies(tmp_path / "cache") == ["b"], "what is read stays"
        with refusal("too-large", "OSBERT_CACHE_GB"):
            make_room(7, "x")
        require_copy(held / "b" / "deeper")
        with refusal("wrong-format", "s3://box/b, line 3"), reading_copies():
            raise UserError(f"{held / 'b'}, line 3", code="wrong-format")
        assert address_of(held / "b" / "c") == "s3://box/b/c"
    make_room(7, "x")
    assert copies(tmp_path / "cache") == [] and not hold(held)
    with refusal("file-changed", "OSBERT_CACHE_GB"):
        require_copy(held / "b")
    with refusal("too-large", "OSBERT_CACHE_GB"):
        make_room(11, "x")
    monkeypatch.setenv("OSBERT_CACHE_GB", "much")
    with refusal("invalid-value", "much"):
        make_room(1, "x")


def test_copies_that_vanish_meanwhile_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSBERT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OSBERT_CACHE_GB", "1e-8")
    there, gone = (tmp_path / "cache" / (letter * 24) for letter in "ab")
    there.mkdir(parents=True)
    (there / "file").write_bytes(b"four")
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter([gone, there]))
    make_room(7, "x")
    assert not there.exists()


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
    monkeypatch.setenv("OSBERT_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").write_text("no folder")
    with refusal("not-written", "OSBERT_CACHE"):
        local_copy("s3://box/up/x")
    with refusal("not-written", "OSBERT_CACHE"), local_output("s3://box/a"):
        pytest.fail("no work is done")


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
    for out in ("s3://box/corpus", "https://example.org/a"):
        with refusal("unknown-scheme", out), claim(Path(out)):
            pytest.fail("no folder of that name is made")
    (tmp_path / "s3:" / "box").mkdir(parents=True)
    assert local_copy("s3:/box") == Path("s3:/box")
    with refusal("unknown-output-format", "s3://box/a.xyz"), local_output("s3://box/a.xyz") as place:
        raise UserError(f"{place}: no format", code="unknown-output-format")
    with refusal("unknown-scheme", "ftp://"):
        local_copy("ftp://box/a.csv")
    monkeypatch.setitem(addresses.SCHEMES, "gs", ("no_such_library", "pip install gcsfs"))
    with refusal("missing-library", "pip install gcsfs"):
        local_copy("gs://box/a.csv")
