"""data.micro_tokens = "auto": which pass is chosen, and that a run keeps its passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import corpora
from osbert.recipe import Word
from osbert.runs.contract import Notice
from osbert.runs.pretrain import passes
from osbert.runs.pretrain.passes import Pass, PassTest
from osbert.runs.pretrain.pretraining import PretrainRequest, pretrain
from osbert.runs.pretrain.settings import PretrainPlan, read_plan, read_settings
from osbert.training import memory
from osbert.training.distributed import ALONE, Group
from osbert.training.progress import Progress
from osbert.training.run_folder import RunFolder
from refusals import refusal
from vocabularies import train

TINY = {
    "model.layers": 1, "width": 16, "heads": 2, "model.length": 24, "batch": 400, "data.length": 24, "held_out": 0.05,
    "steps": 4, "log_every": 2, "checkpoint_every": 2, "evaluate_every": 4, "precision": "fp32", "device": "cpu",
    "dropout": 0.1,
}  # fmt: skip
GIGA = 10**9


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    documents = corpora.invented()
    return corpora.build_corpus(tmp_path_factory.mktemp("texts") / "one", documents, train(documents, vocabulary=120))


@pytest.fixture
def plan(corpus) -> PretrainPlan:
    return read_plan("cpu", TINY, corpus=corpus)


@pytest.fixture
def measurements(monkeypatch) -> list[Any]:
    """Replace the measurements by a list of (tokens per second, bytes beyond the process), which grows by the test."""
    table: list[Any] = []
    monkeypatch.setattr(passes, "MODEST", 0)
    monkeypatch.setattr(memory, "free_memory", lambda device: 10 * GIGA)
    monkeypatch.setattr(passes, "peak_memory", lambda processor: 0)

    def measured(self: PassTest, tokens: int, *, whole: bool) -> Pass | None:
        speed, needed = table.pop(0)
        if not speed:
            return None
        each = tokens / speed
        return Pass(tokens=tokens, speed=speed, seconds=3 * each, round_seconds=each, memory=needed + self.weights)

    monkeypatch.setattr(PassTest, "_measure_pass", measured)
    return table


@pytest.mark.parametrize(
    "table, chosen, reason",
    [
        ([(1e4, 1), (2e4, 2), (3e4, 3), (4e4, 4), (5e4, 5)], 0, "all there are"),  # the whole step of 9,600 tokens
        ([(1e4, 1), (2e4, 2), (2e4, 3), (2.01e4, 4)], 2048, "no faster"),
        ([(1e4, 1), (1e4, 2), (2e4, 3), (2e4, 4), (2e4, 4)], 4096, "no faster"),  # one disturbance ends nothing
        ([(1e4, 1), (2e4, 4 * GIGA)], 2048, "memory"),  # twice 4 is more than 0.7 of 10
        ([(1e4, 1), (0, 0)], 1024, "memory"),  # it ran out in the test
        ([(0, 0)], 24, "memory"),
        ([(1e2, 1)], 1024, "too long"),
    ],
)
def test_it_is_the_smallest_pass_that_is_about_as_fast(plan, measurements, tmp_path, table, chosen, reason) -> None:
    measurements += table
    tokens, remark = passes.choose(plan, tmp_path)
    assert tokens == chosen
    assert reason in remark
    assert not measurements


def test_a_long_run_takes_longer_to_choose(corpus, measurements, tmp_path) -> None:
    table = [(1e2, 1), (2e2, 2), (3e2, 3)]  # 31, 31 and 41 s
    measurements += table
    tokens, remark = passes.choose(read_plan("cpu", TINY | {"steps": 10**6}, corpus=corpus), tmp_path)
    assert tokens == 4096 and "too long" in remark and not measurements
    measurements += table
    assert passes.choose(read_plan("cpu", TINY, corpus=corpus), tmp_path)[0] == 1024


def test_all_processes_choose_alike(plan, measurements, monkeypatch, tmp_path) -> None:
    """A process whose own memory suffices follows another whose does not."""
    monkeypatch.setattr(Group, "gather", lambda self, value, about: [value, False if about == "free memory" else value])
    measurements += [(1e4, 1), (2e4, 2)]
    assert passes.choose(plan, tmp_path)[0] == 1024


def test_a_real_test_measures_the_run_and_leaves_nothing(plan, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(passes, "MODEST", 0)
    monkeypatch.setattr(passes, "SECONDS", 0.01)
    tokens, remark = passes.choose(plan, tmp_path / "scratch")
    assert tokens == 1024
    assert "1,024 tokens" in remark
    assert not (tmp_path / "scratch").exists()


@pytest.mark.lab
def test_passes_of_the_test_are_as_full_as_those_of_the_run_and_of_all_objectives(corpus, tmp_path) -> None:
    """Sequences of this corpus are shorter than data.length, so that a pass takes more of them."""
    curriculum = {"objectives": ("mlm", "document_words"), "curriculum": "continual", "model.segments": 2}
    plan = read_plan("cpu", {**TINY, **curriculum, "workers": 2}, corpus=corpus)
    test = PassTest(plan, tmp_path, 24, ALONE)
    for tokens, least in ((1_024, 1_000), (9_600, 5_000)):
        batches = test._batches(tokens)
        assert [[*batch.targets] for batch in batches] == [["mlm"], ["document_words"]]
        assert all(least < batch.size <= tokens for batch in batches)


@pytest.mark.parametrize("whole, rounds", [(True, 1), (False, 2)])
def test_a_pass_of_several_is_timed_as_two_so_that_one_adds_to_gradients(
    plan, monkeypatch, tmp_path, whole, rounds
) -> None:
    test = PassTest(plan, tmp_path, 24, ALONE)
    seen = []
    monkeypatch.setattr(test.trainer, "rehearse", lambda batches: seen.append(batches) or 9.0)
    found = test._measure_pass(1_024, whole=whole)
    [batches] = seen
    assert len(batches) == rounds
    assert found is not None and found.speed == sum(batch.size for batch in batches) / 9


def test_a_modest_step_is_one_pass_without_a_test(plan, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(PassTest, "try_passes", lambda *given: pytest.fail("it was tested"))
    assert passes.choose(plan, tmp_path) == (0, "")
    assert passes.with_passes(plan, tmp_path).settings.data.micro_tokens == 0


@pytest.mark.parametrize("stored, tokens", [({"micro_tokens": 77}, 77), ({"micro_tokens": 0}, 0), ({}, 0)])
def test_a_run_that_was_begun_keeps_its_number(plan, monkeypatch, tmp_path, stored, tokens) -> None:
    """Versions before "auto" took whole steps by default, and the first ones did not record it."""
    (tmp_path / "run.json").write_text(json.dumps({"settings": {"data": stored}}))
    monkeypatch.setattr(passes, "choose", lambda *given: pytest.fail("it was chosen again"))
    assert passes.with_passes(plan, tmp_path).settings.data.micro_tokens == tokens


def test_a_resumed_run_has_the_same_passes_and_bits(corpus, monkeypatch, tmp_path) -> None:
    def run(out: str, watch=lambda event: None, **settings: Any) -> Path:
        settings = {**TINY, "batch": 8, **settings}
        return pretrain(
            PretrainRequest(recipe="cpu", settings=settings, corpus=corpus, out=tmp_path / out), watch=watch
        ).folder

    def stop(event: Any) -> None:
        events.append(event)
        if isinstance(event, Progress) and event.step == 3:
            raise KeyboardInterrupt

    events: list[Any] = []
    monkeypatch.setattr(passes, "choose", lambda *given: (50, "A pass takes 50."))
    with pytest.raises(KeyboardInterrupt):
        run("stopped", watch=stop)
    assert next(event.text for event in events if isinstance(event, Notice)) == "A pass takes 50."
    monkeypatch.setattr(passes, "choose", lambda *given: pytest.fail("it was chosen again"))
    stopped, whole = run("stopped"), run("whole", micro_tokens=50)
    assert RunFolder(stopped).facts["settings"]["data"]["micro_tokens"] == 50
    one, other = (load_file(folder / "model.safetensors") for folder in (stopped, whole))
    assert all(one[name].equal(other[name]) for name in one)


def test_a_word_that_is_not_auto_is_refused(corpus) -> None:
    with refusal("invalid-value", "data.micro_tokens", "auto", "autos"):
        read_plan("cpu", {**TINY, "micro_tokens": "autos"}, corpus=corpus)
    for word, number in (("auto", "auto"), ("64", 64)):  # as typed on a command line
        assert read_settings("cpu", {"micro_tokens": Word(word)}).data.micro_tokens == number


LIMITED = {"memory.max": "1000\n", "memory.current": "700\n", "memory.stat": "anon 9\ninactive_file 200\n"}
WIDER = {"memory.max": "5000\n", "memory.current": "700\n", "memory.stat": ""}


@pytest.mark.parametrize(
    "groups, own, left",
    [
        ({}, "0::/\n", None),
        ({"": {"memory.max": "max\n"}}, "0::/\n", None),
        ({"": LIMITED}, "0::/\n", 500),
        ({"": LIMITED}, "", 500),  # version 1 of control groups, or another system
        ({"a/b": LIMITED}, "3:cpu:/c\n0::/a/b\n", 500),  # the group of the process itself
        ({"a/b": WIDER, "a": LIMITED}, "0::/a/b\n", 500),  # one above it
        ({"a/b": LIMITED}, "0::/a\n", None),  # another one
        ({"": LIMITED}, "0::/../elsewhere\n", 500),
    ],
)
def test_the_limit_of_a_container_counts(tmp_path, groups, own, left) -> None:
    for group, files in groups.items():
        (tmp_path / "root" / group).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (tmp_path / "root" / group / name).write_text(text)
    (tmp_path / "own").write_text(own)
    found = memory._left_in_container(tmp_path / "root", tmp_path / "own")
    assert found == left if left is not None else found > 2**60
