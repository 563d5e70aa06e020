"""Rows and analyses in tasks on Ray, on this machine: the bytes of one process, also when a worker is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import osbert
from killed_worker import killed_worker

pytest.importorskip("datatrove", reason="the extra 'scale' is not installed")
pytest.importorskip("ray", reason="the extra 'ray' is not installed")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.skipif(not Path("/proc").is_dir(), reason="no /proc")]
TASKS: dict[str, Any] = {"executor": "ray", "tasks": 3, "workers": 2}


def test_a_killed_worker_s_rows_are_predicted_again(runs: dict[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_text(
        "text\n" + "".join(f"a {'good' if n % 3 else 'bad'} film {'play ' * (n % 7)}\n" for n in range(3000))
    )
    osbert.predict(runs["classifier"], file, out=tmp_path / "one.csv")
    with killed_worker() as killed:
        osbert.predict(runs["classifier"], file, out=tmp_path / "two.csv", **TASKS)
    assert killed
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()


@pytest.mark.lab
def test_a_killed_worker_s_analysis_is_made_again(runs: dict[str, Path], tmp_path: Path) -> None:
    data = tmp_path / "text.txt"
    data.write_text("the good film . a bad play\n\na poor actor . the film\n\n" * 20)
    few = {"only": "heads,geometry,similarity", "shortest": 3, "length": 12}
    osbert.analyse(runs["pretrained"], data=data, out=tmp_path / "one", **few)
    with killed_worker() as killed:
        osbert.analyse(runs["pretrained"], data=data, out=tmp_path / "two", **few, **TASKS)
    assert killed
    assert (tmp_path / "one" / "analysis.json").read_bytes() == (tmp_path / "two" / "analysis.json").read_bytes()
