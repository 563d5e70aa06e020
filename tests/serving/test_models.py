"""Runs by their names, as the command line gives them."""

from __future__ import annotations

from pathlib import Path

from osbert.serving.models import Run, named


def test_a_folder_with_an_equals_sign_is_no_name(tmp_path: Path) -> None:
    folder = tmp_path / "rate=3e-5"
    folder.mkdir()
    assert named([str(folder), f"best={folder}"]) == [Run("rate=3e-5", folder), Run("best", folder)]
