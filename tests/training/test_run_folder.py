"""A run folder's identity: begun whole or not at all, and never mixed with another run's settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from osbert.training import run_folder
from osbert.training.run_folder import RunFolder
from refusals import refusal

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


def test_what_a_killed_process_was_writing_is_removed_when_the_run_is_begun_again(tmp_path: Path) -> None:
    """A kill between a file's new name and the end of its private folder leaves the folder, and the file is whole."""
    run = begin(tmp_path)
    run.finish({})
    (tmp_path / ".report.html.0c4f1e7a.part").mkdir()
    kept = tmp_path / ".notes.part"
    kept.mkdir()
    begin(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.endswith(".part")) == [kept.name]


def test_other_settings_or_inputs_are_refused_with_the_difference(tmp_path: Path) -> None:
    begin(tmp_path)
    begin(tmp_path, {**SETTINGS, "training": {"log_every": 50}})
    with refusal("begun-with-other-settings", "model.layers", "2", "4", "c0ffee", "decaf", tmp_path):
        begin(tmp_path, {**SETTINGS, "model": {"layers": 4}}, {"corpus": "decaf"})


def test_of_other_rows_no_hashes_are_named(tmp_path: Path) -> None:
    begin(tmp_path, facts={"corpus": "a1" * 32})
    with refusal("begun-with-other-settings", "corpus") as raised:
        begin(tmp_path, facts={"corpus": "b2" * 32})
    assert "a1a1" not in str(raised.value)


def test_a_setting_that_the_run_did_not_know_yet_stays_at_its_default(tmp_path: Path) -> None:
    run = begin(tmp_path)
    defaults = {"model": {"turbo": 0.5, "layers": 12}, "mlm": {"weight": 1.0}}

    def resume(**settings: object) -> None:
        run.begin({**SETTINGS, **settings}, FACTS, inputs=("corpus",), defaults=defaults)

    with refusal("begun-with-other-settings", "model.turbo"):
        resume(model={"layers": 2, "turbo": 0.7}, mlm={"weight": 1.0})
    with refusal("begun-with-other-settings", "mlm.weight"):
        resume(model={"layers": 2, "turbo": 0.5}, mlm={"weight": 0.5})
    with refusal("begun-with-other-settings", "model.layers", "2"):
        resume(model={"layers": 12, "turbo": 0.5}, mlm={"weight": 1.0})
    resume(model={"layers": 2, "turbo": 0.5}, mlm={"weight": 1.0})
    assert run.facts["settings"]["model"] == {"layers": 2, "turbo": 0.5}


def test_passes_may_have_another_size(tmp_path: Path) -> None:
    for tokens in (4096, 1024):
        assert begin(tmp_path, {**SETTINGS, "data": {"micro_tokens": tokens}}).begin(
            {**SETTINGS, "data": {"micro_tokens": tokens}}, FACTS, inputs=("corpus",)
        ) == []  # fmt: skip


def test_a_run_that_had_to_end_goes_on_with_a_remedy_and_nothing_else(tmp_path: Path) -> None:
    fast, slow, small = ({"optimizer": {"learning_rate": rate}, "data": {"batch": 8}} for rate in (1e-2, 1e-3, 1e-4))
    begin(tmp_path, fast)
    with refusal("begun-with-other-settings", "optimizer.learning_rate", "0.01", "0.001"):
        begin(tmp_path, slow)
    run = RunFolder(tmp_path)
    run.fail(8)
    with refusal("begun-with-other-settings", "data.batch", "8", "4") as caught:
        begin(tmp_path, {**slow, "data": {"batch": 4}})
    assert "learning_rate" not in str(caught.value)
    assert run.begin(fast, FACTS, inputs=("corpus",)) == []
    assert run.facts["failed"] == {"step": 8}
    assert run.begin(slow, FACTS, inputs=("corpus",)) == ["optimizer.learning_rate: 0.01 -> 0.001"]
    assert run.facts["changes"] == [{"step": 8, "settings": ["optimizer.learning_rate: 0.01 -> 0.001"]}]
    assert run.begin(slow, FACTS, inputs=("corpus",)) == []
    with refusal("begun-with-other-settings"):
        begin(tmp_path, small)
    run.fail(9)
    begin(tmp_path, small)
    assert [change["step"] for change in run.facts["changes"]] == [8, 9]
    run.finish({})
    assert "failed" not in run.facts


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with refusal("output-holds-something-else", "config.json"):
        begin(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    for content in ("{}", '{"scripts": {}}'):
        (tmp_path / "run.json").write_text(content)
        with refusal("output-holds-something-else", "run.json"):
            RunFolder(tmp_path).refuse_foreign()
        with refusal("output-holds-something-else", "run.json"):
            begin(tmp_path)


def test_the_end_is_noted(tmp_path: Path) -> None:
    run = begin(tmp_path)
    assert not run.finished
    run.finish({"processor": "cpu fp32"})
    assert RunFolder(tmp_path).finished


def test_a_damaged_run_file_is_told(tmp_path) -> None:
    (tmp_path / "run.json").write_text('{"settings": {"a"')
    with refusal("damaged-file", "run.json"):
        _ = RunFolder(tmp_path).facts


def test_why_a_run_has_no_model_is_told(tmp_path: Path) -> None:
    RunFolder(tmp_path).refuse_unended()
    run = begin(tmp_path)
    with refusal("unfinished-run", "has not come to its end", "command again: it goes on where it was."):
        run.refuse_unended()
    run.fail(3)
    with refusal("unfinished-run", "infinite", "Give its command again with a lower learning rate"):
        run.refuse_unended()
    run.finish({})
    with refusal("not-a-model", "has come to its end, but its config.json is missing. Put it back"):
        run.refuse_unended()


def test_the_tokens_of_pretraining_are_counted_with_those_of_the_origin_if_they_are_known(tmp_path: Path) -> None:
    settings = {"objectives": ["mlm"], "training": {"steps": 100}, "data": {"batch": 8, "length": 64}}
    vectors = {"tokens": 1000, "settings": {"vectors": "glove", "epochs": 5}}
    for facts, tokens in (
        ({"settings": settings}, 51_200),
        ({"settings": settings, "origin": "a published model's hash"}, None),
        ({"settings": settings, "origin": "a hash of ours", "origin_tokens": 1_000_000}, 1_051_200),
        (vectors, 5000),
        ({**vectors, "finished": {"tokens": 1700}}, 1700),
        ({"settings": {"task": "classify"}}, None),
        ({}, None),
    ):
        (tmp_path / "run.json").write_text(json.dumps(facts))
        assert RunFolder(tmp_path).pretraining_tokens == tokens
        assert RunFolder(tmp_path).origin_facts == ({} if tokens is None else {"origin_tokens": tokens})
