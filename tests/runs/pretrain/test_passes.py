"""data.micro_tokens = "auto": which pass is chosen, and that a run keeps its passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import corpora
from osbert.recipe import Word
from osbert.runs.contract import Notice
from osbert.runs.pretrain import passes
from osbert.runs.pretrain.pretraining import PretrainRequest, pretrain
from osbert.runs.pretrain.settings import PretrainPlan, read_plan, read_settings
from osbert.training import memory
from osbert.training.distributed import Group
from osbert.training.processor import Processor
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


@pytest.mark.parametrize(
    "free, layers, batch, tokens",
    [
        (10 * GIGA, 1, 400, 0),  # a step of 9,600 tokens takes less than a gigabyte
        (10 * GIGA, 1, 10**6, 2**18),
        (10 * GIGA, 400, 400, 1024),  # as few as are fast, whatever they take
        (10**8, 1, 10**6, 2**14),
        (10**7, 1, 400, 2**11),
        (1, 1, 400, 24),  # one sequence
    ],
)
def test_a_pass_is_as_large_as_is_fast_and_fits(corpus, monkeypatch, free, layers, batch, tokens) -> None:
    monkeypatch.setattr(passes, "free_memory", lambda device: free)
    plan = read_plan("cpu", TINY | {"model.layers": layers, "batch": batch}, corpus=corpus)
    assert passes.count_pass_tokens(plan) == tokens


def test_a_gpu_takes_what_its_memory_holds(corpus, monkeypatch) -> None:
    for free, precision, tokens in ((10**8, "fp32", 2**14), (10**8, "bf16", 2**15), (10**12, "fp32", 2**16)):
        monkeypatch.setattr(passes, "free_memory", lambda device, free=free: free)
        processor = Processor(device=torch.device("cuda"), precision=precision)
        monkeypatch.setattr(passes, "choose", lambda *given, processor=processor: processor)
        plan = read_plan("cpu", TINY | {"batch": 10**5}, corpus=corpus)
        assert passes.count_pass_tokens(plan) == tokens


def test_all_processes_take_the_fewest_tokens(plan, monkeypatch, tmp_path) -> None:
    """A process whose own memory suffices for a whole step (0) follows another whose does not."""
    monkeypatch.setattr(Group, "first", lambda self, action: action())
    monkeypatch.setattr(Group, "gather", lambda self, value, about: [value, 512, 1024])
    group = Group(0, 3)
    assert passes.with_passes(plan, tmp_path, group=group).settings.data.micro_tokens == 512


def test_a_small_step_is_one_pass_without_a_word(plan, tmp_path) -> None:
    chosen = passes.with_passes(plan, tmp_path, lambda event: pytest.fail(str(event)))
    assert chosen.settings.data.micro_tokens == 0


@pytest.mark.parametrize("stored, tokens", [({"micro_tokens": 77}, 77), ({"micro_tokens": 0}, 0), ({}, 0)])
def test_a_run_that_was_begun_keeps_its_number(plan, monkeypatch, tmp_path, stored, tokens) -> None:
    """Versions before "auto" took whole steps by default, and the first ones did not record it."""
    (tmp_path / "run.json").write_text(json.dumps({"settings": {"data": stored}}))
    monkeypatch.setattr(passes, "count_pass_tokens", lambda *given: pytest.fail("it was chosen again"))
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
    monkeypatch.setattr(passes, "count_pass_tokens", lambda *given: 50)
    with pytest.raises(KeyboardInterrupt):
        run("stopped", watch=stop)
    assert next(event.text for event in events if isinstance(event, Notice)).startswith("A pass takes at most 50 ")
    monkeypatch.setattr(passes, "count_pass_tokens", lambda *given: pytest.fail("it was chosen again"))
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
