"""The tables of docs/results.md are those of the measurements in benchmarks/results, which are all well formed."""

from __future__ import annotations

import doctest
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("result_tables", ROOT / "tools" / "result_tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TOOL = tool()


def test_the_page_shows_the_measurements_as_they_are() -> None:
    text = TOOL.PAGE.read_text(encoding="utf-8")
    assert TOOL.page(text) == text, "`python tools/result_tables.py` writes the tables anew"
    assert text.count("<!-- table ") > 10 and text.count("<!-- end -->") == len(
        re.findall("<!-- (?:table|index)", text)
    )


@pytest.mark.parametrize("name", TOOL.names())
def test_a_measurement_is_well_formed(name: str) -> None:
    measurement = TOOL.read(name)
    cells = [cell for row in [measurement["columns"], *measurement["rows"]] for cell in row]
    assert measurement["rows"] and not [cell for cell in cells if "|" in cell or "**" in cell]
    assert re.search(r"\d", "".join(cells)) or "not measured" in cells
    assert measurement["what"] in TOOL.whole(name)


def test_what_is_no_measurement_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TOOL, "FOLDER", tmp_path)
    for text in ('columns = ["a"]\nrows = [["1"]]', 'what = "b"\ncolumns = ["a"]\nrows = [["1", "2"]]'):
        (tmp_path / "wrong.toml").write_text(text)
        with pytest.raises(ValueError):
            TOOL.read("wrong")


def test_the_examples_of_the_tool_hold() -> None:
    assert doctest.testmod(TOOL).failed == 0
