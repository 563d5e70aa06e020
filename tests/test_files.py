"""Files and folders that are there whole or not at all, and errors of the system that libraries tell of in words."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import osbert
from osbert.errors import UserError
from osbert.files import (
    disk_full,
    hidden,
    read_sealed,
    refuse_foreign,
    replace_file,
    replacing,
    require_file,
    require_folder,
    require_path,
    system_error,
    whole_folder,
    write_json,
    write_sealed,
    write_text,
    writing_output,
)
from osbert.interop.files.weight_files import read_file, write_tensors
from osbert.lock import claim
from refusals import refusal

DIE = """
import os, sys
from pathlib import Path
from osbert.files import replacing, whole_folder
with (whole_folder if sys.argv[2] == "folder" else replacing)(Path(sys.argv[1])) as aside:
    (aside / "half" if sys.argv[2] == "folder" else aside).write_text("half")
    os._exit(9)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_number_in_the_words_is_the_error() -> None:
    found = system_error(ValueError("I/O error: No space left on device (os error 28)"), Path("a/b"))
    assert isinstance(found, OSError)
    assert (found.errno, found.filename) == (errno.ENOSPC, str(Path("a/b")))
    assert disk_full(found)


def test_other_errors_stay_what_they_are() -> None:
    error = ValueError("no such tensor (error 28)")
    assert system_error(error, Path("a")) is error


def test_json_keeps_file_names_that_are_not_utf_8(tmp_path: Path) -> None:
    write_json(tmp_path / "run.json", {"caf\udce9": "\udcff"})
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8")) == {"caf\udce9": "\udcff"}


def test_weights_in_a_folder_that_is_not_utf_8_are_a_message(tmp_path: Path) -> None:
    path = tmp_path / "caf\udce9" / "model.safetensors"
    path.parent.mkdir()
    path.write_bytes(b"")
    with refusal("file-name-not-utf8", "8"):
        read_file(path)
    with refusal("file-name-not-utf8", "8"):
        write_tensors({}, path)


def test_two_writers_of_one_file_never_mix(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with replacing(path) as first:
        first.write_text("the first")
        with replacing(path) as second:
            second.write_text("the second")
        assert path.read_text() == "the second"
    assert path.read_text() == "the first" and names(tmp_path) == ["a.txt"]


def test_what_went_wrong_leaves_the_file_and_nothing_else(tmp_path: Path) -> None:
    write_text(path := tmp_path / "a.txt", "before")
    with pytest.raises(OSError, match="full"), replacing(path) as aside:
        aside.write_text("half")
        raise OSError("full")
    assert path.read_text() == "before" and names(tmp_path) == ["a.txt"]


def test_permissions_of_a_replaced_file_stay_and_new_ones_get_the_umasks(tmp_path: Path) -> None:
    path, before = tmp_path / "a.txt", os.umask(0o027)
    try:
        write_text(path, "new")
        assert path.stat().st_mode & 0o777 == 0o640
        path.chmod(0o600)
        write_text(path, "replaced")
        assert path.stat().st_mode & 0o777 == 0o600
        with whole_folder(tmp_path / "folder"):
            pass
        assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o750
    finally:
        os.umask(before)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only the superuser gives files away")
def test_the_owner_of_a_replaced_file_stays(tmp_path: Path) -> None:
    write_text(path := tmp_path / "a.txt", "a user's")
    os.chown(path, 1234, 1234)
    write_text(path, "written by root")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 1234)


@pytest.mark.parametrize("name", ["a.txt", ".a.txt.part"])
def test_links_are_replaced_and_never_written_through(tmp_path: Path, name: str) -> None:
    (tmp_path / "other").write_text("somebody's")
    (tmp_path / name).symlink_to("other")
    write_text(tmp_path / "a.txt", "ours")
    assert (tmp_path / "other").read_text() == "somebody's"
    assert (tmp_path / "a.txt").read_text() == "ours" and not (tmp_path / "a.txt").is_symlink()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "out"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", DIE, str(path), kind], check=False)
    assert len(names(tmp_path)) == 1  # that of the second, which removed that of the first
    foreign = tmp_path / ".out.12345678.part"
    foreign.write_text("somebody's file, no folder of ours")
    if kind == "folder":
        with whole_folder(path) as aside:
            (aside / "a").write_text("whole")
    else:
        replace_file(path, lambda aside: aside.write_text("whole"))
    assert names(tmp_path) == [foreign.name, "out"]


def test_what_a_living_process_writes_stays(tmp_path: Path) -> None:
    with replacing(tmp_path / "a") as aside:
        aside.write_text("slow")
        write_text(tmp_path / "a", "fast")
        assert aside.read_text() == "slow"


def test_a_pipe_is_written_and_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True) as reader:
        with writing_output(pipe) as path:
            path.write_text("through")
        assert reader.communicate()[0] == "through"
    assert pipe.is_fifo()
    with writing_output(Path(os.devnull)) as path:
        path.write_text("gone")
    assert Path(os.devnull).is_char_device()


def test_a_very_long_name_can_be_written(tmp_path: Path) -> None:
    write_text(path := tmp_path / ("x" * 250), "a")
    assert path.read_text() == "a" and len(hidden(path, "12345678.part").name) < 100


def test_an_output_file_is_no_folder_and_none_of_the_inputs(tmp_path: Path) -> None:
    (source := tmp_path / "in.csv").write_text("text\na\n")
    os.link(source, tmp_path / "hard.csv")
    (tmp_path / "soft.csv").symlink_to(source)
    for out in (source, tmp_path / "hard.csv", tmp_path / "soft.csv", tmp_path / ".." / tmp_path.name / "in.csv"):
        with refusal("output-is-input", "in.csv"):
            require_file(out, (source,))
    with refusal("output-is-folder"):
        require_file(tmp_path)
    require_file(tmp_path / "out.csv", (source, tmp_path / "missing"))


def test_a_folder_is_filled_only_where_nothing_of_others_lies(tmp_path: Path) -> None:
    refuse_foreign(tmp_path / "absent", "a run")
    for name in (".DS_Store", ".gitkeep", "log", "log.txt", "train.log", "nohup.out", "ours.json"):
        (tmp_path / name).touch()
    refuse_foreign(tmp_path, "a run", ("ours*",))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logins.csv").touch()
    (tmp_path / "thesis.doc").touch()
    with refusal("output-holds-something-else", "ours.json", "thesis.doc", "logins.csv"):
        refuse_foreign(tmp_path, "a run")
    with refusal("output-is-file"):
        refuse_foreign(tmp_path / "thesis.doc", "a run")


def test_a_sealed_file_gives_what_was_written_or_an_error(tmp_path: Path) -> None:
    write_sealed(path := tmp_path / "a.json", value := {"steps": (1, 2), "rate": 1e-3, "of": {"ä": None}})
    assert read_sealed(path) == {**value, "steps": [1, 2]}
    content = path.read_bytes()
    for place in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            assert read_sealed(path) == {**value, "steps": [1, 2]}  # 1e-3 may have become 1E-3
        except ValueError:
            continue


def test_an_output_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "more.csv").touch()
    for out, code in {
        Path("/"): "invalid-value",
        tmp_path / "x\0y": "invalid-value",
        tmp_path / ("y" * 300): "invalid-value",
        tmp_path / ("y" * 300) / "z": "invalid-value",
        tmp_path / "more.csv" / "x": "output-is-file",
        tmp_path / "more.csv" / "x" / "y": "output-is-file",
    }.items():
        for require in (require_path, require_file, require_folder):
            with refusal(code):
                require(out)
        with refusal(code), claim(out):
            pass
    for out in (tmp_path, tmp_path / "new", tmp_path / "new" / "deep", Path("."), tmp_path / "more.csv"):
        require_path(out)


@pytest.mark.parametrize("out", ["/", "x\0y", "more.csv/x", "y" * 300])
def test_an_output_of_python_s_that_cannot_be_is_refused(
    out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("more.csv").touch()
    with pytest.raises(UserError):
        osbert.train_tokenizer(["a good film"] * 5, out=out, vocabulary=40)
    with pytest.raises(UserError):
        osbert.finetune("classify", model="encoder", data=[("good", "pos"), ("bad", "neg")], out=out)
