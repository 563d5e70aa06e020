"""Calls on one loaded model in two threads: each has the result, to the bit, that it has alone."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.nn.modules.module import register_module_forward_hook

from osbert.data.batch import collate
from osbert.inference.engine import Engine, load
from osbert.tasks import Record
from tiny_runs import write_run

TEXT, OTHER = "the good film . a poor play", "a bad actor"
MASKED = "the good [MASK]"
Call = Callable[[Engine], Any]


def compare_training_rows(model: Engine) -> Any:
    """Return what `osbert.training_rows` computes, of a model that is already loaded."""
    from osbert_lab.influence.influence import Influence

    task = model.fine_tuned
    examples = task.encode(task.record_of([TEXT]), model.packer)
    influence = Influence(model.learner, task.name, examples, [[np.array([-1.0, 1.0])]])
    rows = [
        task.encode(Record(number=n, texts=(text,), label="pos"), model.packer)[0]
        for n, text in enumerate((TEXT, OTHER))
    ]
    found = influence.of(collate([replace(row, record=number) for number, row in enumerate(rows)]))
    return [(one.pulls.tolist(), one.cosine) for one in found.values()]


CALLS: dict[str, Call] = {
    "predict": lambda model: model.predict([TEXT, OTHER]),
    "embed": lambda model: model.embed([TEXT, OTHER, "the"]).tobytes(),
    "states": lambda model: model.states(OTHER, layers=[0, 1]).tobytes(),
    "attention": lambda model: model.attention(TEXT).weights.tobytes(),
    "explain": lambda model: model.explain(MASKED if model.task is None else TEXT, points=3, tolerance=1e9),
    "training rows": compare_training_rows,
    "fill": lambda model: model.fill(MASKED),
    "score": lambda model: [one.log_likelihood for one in model.score([TEXT, OTHER])],
    "generate": lambda model: model.generate(["the good", "a"], most=4),
}  # fmt: skip
MODELS = {
    "classifier": (
        "predict",
        "embed",
        "states",
        "attention",
        "explain",
        *(["training rows"] if find_spec("osbert_lab") else []),
    ),
    "pretrained": ("embed", "states", "attention", "explain", "fill", "score"),
    "writer": ("embed", "states", "attention", "score", *(["generate"] if find_spec("osbert_lab") else [])),
}


@pytest.fixture(scope="module")
def models(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Engine]:
    writer = write_run(tmp_path_factory.mktemp("made") / "writer", None, masks=True, direction="left_to_right")
    folders = {**runs, "writer": writer}
    return {name: load(folders[name], device="cpu") for name in MODELS}


@contextmanager
def interrupt(moment: int, run: Callable[[], None]) -> Iterator[None]:
    """Call `run` in another thread, and wait for it, after the module call `moment` of this one."""
    own, count = threading.get_ident(), 0

    def hook(*_: object) -> None:
        nonlocal count
        if threading.get_ident() == own:
            if count == moment:
                thread = threading.Thread(target=run)
                thread.start()
                thread.join()
            count += 1

    handle = register_module_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()
        assert count > moment, "the call ended before the other began"


def count_modules(call: Call, model: Engine) -> int:
    """Return how many modules a call computes, if it is not the first: the first vectors cost one text more."""
    calls = []
    call(model)
    handle = register_module_forward_hook(lambda *_: calls.append(None))
    try:
        call(model)
    finally:
        handle.remove()
    return len(calls)


@pytest.mark.parametrize("name, first", [(name, call) for name, calls in MODELS.items() for call in calls])
def test_a_call_within_another_changes_neither(models: dict[str, Engine], name: str, first: str) -> None:
    """The second call begins and ends within the first one: after its first module, in its middle, after its last."""
    model = models[name]
    count = count_modules(CALLS[first], model)
    for second in MODELS[name]:
        alone = CALLS[first](model), CALLS[second](model)
        for moment in sorted({0, 1, count // 3, count // 2, count - 2, count - 1}):
            inner: list[Any] = []
            with interrupt(moment, lambda: inner.append(CALLS[second](model))):  # noqa: B023
                outer = CALLS[first](model)
            assert (outer, inner) == (alone[0], [alone[1]]), f"{second} in module {moment} of {first}"


def test_two_threads_at_once_change_neither(models: dict[str, Engine]) -> None:
    for name, names in MODELS.items():
        alone = {call: CALLS[call](models[name]) for call in names}
        for pair in product(names, names):
            start, found = threading.Barrier(2), []

            def work(call: str) -> None:
                start.wait()  # noqa: B023
                found.extend((call, CALLS[call](models[name])) for _ in range(3))  # noqa: B023

            threads = [threading.Thread(target=work, args=(call,)) for call in pair]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(found) == 6 and all(result == alone[call] for call, result in found), pair


def test_no_call_leaves_or_needs_a_switch(models: dict[str, Engine]) -> None:
    """Neither modes, gradients nor hooks of a loaded model change while a call computes."""
    for name, calls in MODELS.items():
        learner = models[name].learner

        def state(learner: Any = learner) -> list[object]:
            return [
                (module.training, len(module._forward_hooks), len(module._forward_pre_hooks))
                for module in learner.modules()
            ] + [weight.requires_grad for weight in learner.parameters()]

        before, seen = state(), []
        handle = register_module_forward_hook(lambda *_: seen.append(state()))  # noqa: B023
        try:
            for call in calls:
                CALLS[call](models[name])
        finally:
            handle.remove()
        assert seen and all(one == before for one in seen)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_pickles_and_computes_the_same(models: dict[str, Engine], name: str) -> None:
    again = pickle.loads(pickle.dumps(models[name]))
    for call in MODELS[name]:
        assert CALLS[call](again) == CALLS[call](models[name])


FORKING = """
import os, signal, sys, torch, osbert
torch.set_num_threads(2)
model, texts = osbert.load(sys.argv[1]), ["the good film"] * 600
values = [prediction.value for prediction in model.predict(texts)]
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if [prediction.value for prediction in model.predict(texts)] == values else 1)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status) or 2 * (torch.get_num_threads() != 2))
"""
"""Predicts in a process with several threads, then in a child that is forked from it."""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
def test_a_forked_process_predicts_the_same(runs: dict[str, Path]) -> None:
    done = subprocess.run([sys.executable, "-c", FORKING, str(runs["classifier"])], timeout=100)
    assert done.returncode == 0
