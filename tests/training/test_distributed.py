"""Two processes do what one does: the same samples, the same gradient, the same checkpoints; and they end together."""

from __future__ import annotations

import json
import random
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from clock import CLOCK
from forked import start_script
from osbert import recipe
from osbert.commands.pretrain import pretrain
from osbert.corpus.build import Build
from osbert.corpus.state import BuildSettings
from osbert.interop.tokenizers import write_tokenizer
from osbert.reading.documents import DocumentOptions
from osbert.training.checkpoint import Checkpoints
from osbert.training.settings import TrainingSettings
from osbert.training.tracking import read_lines
from refusals import refusal
from vocabularies import train

SETTINGS = """
objectives = ["mlm", "nsp"]
[model]
layers = 2
width = 16
heads = 2
length = 32
dropout = 0.0
attention_dropout = 0.0
[data]
batch = 9
micro_tokens = 64
length = 24
long_share = 0.34
long_length = 32
[optimizer]
learning_rate = 5e-3
[training]
steps = 6
log_every = 1
checkpoint_every = 3
evaluate_every = 3
precision = "fp32"
device = "cpu"
"""
HALF, WHOLE = 3, 6


def together(*command: str) -> str:
    """Run a command in two processes, and return what they said."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*launch, *command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def without_torchrun(script: Path, folder: Path) -> str:
    """Run a script in two processes as well, forked here: torchrun itself takes as long as one of them."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    logs = {rank: folder / f"said-{rank}.log" for rank in ("0", "1")}
    started = [
        start_script(script, [str(folder)], {"OMP_NUM_THREADS": "1", **shared, "RANK": rank, "LOCAL_RANK": rank}, log)
        for rank, log in logs.items()
    ]
    try:
        for process in started:
            process.join(timeout=300)
    finally:
        for process in started:
            process.kill()
    said = [log.read_text() for log in logs.values()]
    assert [process.exitcode for process in started] == [0, 0], said
    return "".join(said)


def begin_at_half(source: Path, out: Path) -> None:
    """Lay a run's folder out as it was when half its steps were done."""
    shutil.copytree(source, out)
    shutil.rmtree(out / "checkpoints" / f"step-{WHOLE}")
    facts = json.loads((out / "run.json").read_text())
    facts.pop("finished")
    (out / "run.json").write_text(json.dumps(facts))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """One run alone, one in two processes, and what two processes make of the first one's checkpoint."""
    folder = tmp_path_factory.mktemp("runs")
    rng = random.Random(0)
    words = [first + second for first in ("ba", "ke", "lo", "mi", "nu") for second in ("da", "fe", "gi", "ho")]
    texts = [" ".join(" ".join(rng.choices(words, k=rng.randint(3, 9))) + "." for _ in range(8)) for _ in range(40)]
    (folder / "source.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    tokenizer = train(texts, vocabulary=101)  # which two processes cannot share evenly
    settings = BuildSettings(reading=DocumentOptions(documents="line"))
    Build.prepare([folder / "source.txt"], tokenizer=tokenizer, folder=folder / "corpus", settings=settings).run()
    write_tokenizer(tokenizer, folder / "corpus")
    recipe = folder / "tiny.toml"
    recipe.write_text(SETTINGS)
    arguments = ["pretrain", str(recipe), "--corpus", str(folder / "corpus"), "--out", str(folder / "ddp")]
    pretrain(str(recipe), corpus=folder / "corpus", out=folder / "one")
    pretrain(str(recipe), "--method", "muon", corpus=folder / "corpus", out=folder / "muon")
    pretrain(str(recipe), "--objectives", "replaced", corpus=folder / "corpus", out=folder / "replaced")
    begin_at_half(folder / "replaced", folder / "ddp-replaced")
    begin_at_half(folder / "replaced", folder / "fsdp-replaced")
    begin_at_half(folder / "one", folder / "fsdp")
    begin_at_half(folder / "muon", folder / "fsdp-muon")
    said = together("-m", "osbert", *arguments)
    said_later = without_torchrun(Path(__file__).with_name("together.py"), folder)
    ended = [json.loads((folder / f"ended-{rank}.json").read_text()) for rank in (0, 1)]
    return SimpleNamespace(folder=folder, said=said, said_later=said_later, ended=ended)


def assert_same_weights(one: Path, other: Path) -> None:
    expected, found = load_file(one / "model.safetensors"), load_file(other / "model.safetensors")
    assert found.keys() == expected.keys()
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-4)


def assert_same(one: Path, other: Path) -> None:
    """The same weights and moments and the same curve, to rounding; the same samples, exactly."""
    assert_same_weights(one, other)
    checkpoints = [folder / "checkpoints" / f"step-{WHOLE}" for folder in (one, other)]
    expected, found = (Checkpoints(folder / "checkpoints").read(WHOLE).optimizer for folder in (one, other))
    assert found.keys() == expected.keys()
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-3)
    states = [json.loads((folder / "state.json").read_text()) for folder in checkpoints]
    assert states[0]["cursor"] == states[1]["cursor"]
    lines = [read_lines(folder / "metrics.jsonl") for folder in (one, other)]
    assert len(lines[0]) == len(lines[1]) == WHOLE + 2
    for left, right in zip(*lines, strict=True):
        assert left.keys() == right.keys()
        for name in left.keys() - {*CLOCK}:
            np.testing.assert_allclose(right[name], left[name], rtol=1e-4, err_msg=name)


def test_replicas_train_as_one_process_does(runs: SimpleNamespace) -> None:
    assert_same(runs.folder / "one", runs.folder / "ddp")


def test_the_first_process_alone_speaks_and_nothing_alarms(runs: SimpleNamespace) -> None:
    assert "2 processes (ddp)" in runs.said
    assert runs.said.count("The model is in") == 1
    assert runs.said.count("held out:") == 2
    for word in ("Error", "error", "Warning", "WARN", "Traceback"):
        assert word not in runs.said, runs.said


def test_shards_go_on_from_one_process_s_checkpoint(runs: SimpleNamespace) -> None:
    """The gradients of uneven parts, and of parts without labels, are compared in together.py, and memory runs out."""
    assert runs.ended[0]["fsdp"] == runs.ended[1]["fsdp"] == ""
    assert f"Going on from the checkpoint of step {HALF}." in runs.said_later
    assert_same(runs.folder / "one", runs.folder / "fsdp")


def test_one_process_goes_on_from_a_checkpoint_of_two(runs: SimpleNamespace, tmp_path: Path, capsys) -> None:
    begin_at_half(runs.folder / "ddp", tmp_path / "run")
    pretrain(str(runs.folder / "tiny.toml"), corpus=runs.folder / "corpus", out=tmp_path / "run")
    assert "processes: 2 -> 1" in capsys.readouterr().out
    assert_same(runs.folder / "one", tmp_path / "run")


def test_all_stop_after_the_step_in_which_one_was_asked_to(runs: SimpleNamespace) -> None:
    assert runs.ended[0]["stopped"] == runs.ended[1]["stopped"] == "stopped"
    assert f"Stopped after step {HALF} of {WHOLE}." in runs.said_later
    stopped, whole = (runs.folder / name / "checkpoints" / f"step-{HALF}" for name in ("stopped", "ddp"))
    for name in ("weights.safetensors", "optimizer.safetensors"):
        assert (stopped / name).read_bytes() == (whole / name).read_bytes()


def test_what_is_refused_is_told_once(runs: SimpleNamespace) -> None:
    assert [ended["refused"] for ended in runs.ended] == ["UserError", "SystemExit"]
    assert not (runs.folder / "refused").exists()


def test_muon_moves_matrices_of_which_each_process_has_a_share(runs: SimpleNamespace) -> None:
    assert runs.ended[0]["muon"] == runs.ended[1]["muon"] == ""
    assert_same(runs.folder / "muon", runs.folder / "fsdp-muon")


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_generator_is_trained_and_drawn_from_as_in_one_process(runs: SimpleNamespace, kind: str) -> None:
    """The share of replaced tokens, precision and recall are the same, so the pieces that were drawn are."""
    assert runs.ended[0][f"{kind}-replaced"] == runs.ended[1][f"{kind}-replaced"] == ""
    assert_same(runs.folder / "replaced", runs.folder / f"{kind}-replaced")
    assert_same_weights(runs.folder / "replaced" / "generator", runs.folder / f"{kind}-replaced" / "generator")


def test_hybrid_sharding_is_refused() -> None:
    with refusal("invalid-value", "hybrid", "fsdp"):
        recipe.build(TrainingSettings, {"parallel": "hybrid"}, where="training")
