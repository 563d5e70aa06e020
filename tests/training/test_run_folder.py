"""A run folder's identity: begun whole or not at all, and never mixed with another run's settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from osbert.errors import UserError
from osbert.training import run_folder
from osbert.training.run_folder import RunFolder

SETTINGS = {"objectives": ["mlm"], "model": {"layers": 2}, "training": {"log_every": 10}}
FACTS = {"corpus": "c0ffee"}


def begin(folder: Path, settings: dict = SETTINGS, facts: dict = FACTS) -> RunFolder:
    run = RunFolder(folder)
    run.begin(settings, facts, inputs=("corpus",))
    return run


@pytest.mark.parametrize("writer", ["write_json", "write_text"])
def test_a_death_between_the_first_writes_leaves_a_folder_that_can_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(run_folder, writer, die)
        with pytest.raises(Killed):
            begin(tmp_path / "run")
    begin(tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["recipe.toml", "run.json"]


def test_other_settings_or_inputs_are_refused_with_the_difference(tmp_path: Path) -> None:
    begin(tmp_path)
    begin(tmp_path, {**SETTINGS, "training": {"log_every": 50}})
    with pytest.raises(UserError, match=r"model\.layers: 2 -> 4\n  corpus: \"c0ffee\" -> \"decaf\"") as caught:
        begin(tmp_path, {**SETTINGS, "model": {"layers": 4}}, {"corpus": "decaf"})
    assert str(tmp_path) in str(caught.value)


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"already holds config\.json"):
        begin(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_the_end_is_noted(tmp_path: Path) -> None:
    run = begin(tmp_path)
    assert not run.finished
    run.finish({"processor": "cpu fp32"})
    assert RunFolder(tmp_path).finished
