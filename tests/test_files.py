"""Errors of the system that libraries tell of in words."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from osbert.errors import UserError
from osbert.files import disk_full, system_error, write_json
from osbert.interop.weight_files import read_file, write_tensors


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
    with pytest.raises(UserError, match="UTF-8"):
        read_file(path)
    with pytest.raises(UserError, match="UTF-8"):
        write_tensors({}, path)
