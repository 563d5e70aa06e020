"""Four processes on two nodes: sharding trains as replicas do, and a lost process costs no more than steps."""

from __future__ import annotations

import json
import shutil
import signal
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness import EVERY, LONG, STEPS, Child, Ended, Site, compare, metrics, sample
from safetensors.torch import load_file

from osbert.training.checkpoint import Checkpoints

SIZE, NODE = 4, 2
QUIET = ("--dropout", "0", "--attention-dropout", "0", "--data.micro-tokens", "0")
"""Random numbers depend on passes and processes."""


def start(site: Site, out: Path, *settings: str, rank: int = -1, **fault: Any) -> list[Ended]:
    """Run to the end in four processes, as torchrun starts them on nodes of NODE; one of them with a fault."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(SIZE), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    children = [
        Child(
            site.zygote,
            site.words(out, *settings),
            output=site.folder / f"{out.name}-{number}.txt",
            fault=fault if number == rank else {},
            RANK=str(number),
            LOCAL_RANK=str(number % NODE),
            LOCAL_WORLD_SIZE=str(NODE),
            **shared,
        )
        for number in range(SIZE)
    ]
    return [child.ended() for child in children]


def assert_close(one: Path, other: Path) -> None:
    """Equal losses at every step and equal weights, to rounding."""
    for left, right in zip(metrics(one), metrics(other), strict=True):
        assert left.keys() == right.keys()
        for name in left:
            np.testing.assert_allclose(right[name], left[name], rtol=1e-4, err_msg=name)
    weights = [load_file(out / "model.safetensors") for out in (one, other)]
    torch.testing.assert_close(weights[1], weights[0], atol=2e-6, rtol=1e-4)


@pytest.fixture(scope="module")
def sharded(whole_site: Site) -> Path:
    """A run of four processes that was left in peace."""
    out = whole_site.fresh()
    found = start(whole_site, out, "--parallel", "fsdp", *QUIET)
    assert [one.status for one in found] == [0] * SIZE, found
    assert "4 processes (fsdp)" in found[0].output
    return out


def test_four_processes_on_two_nodes_train_as_one_does(site: Site, sharded: Path) -> None:
    """The same weights and moments come out of their shards; in the long form replicas are compared, too."""
    out = site.fresh()
    assert site.run(out, *QUIET).status == 0
    assert_close(out, sharded)
    one, four = (Checkpoints(folder / "checkpoints").read(STEPS) for folder in (out, sharded))
    torch.testing.assert_close(four.weights, one.weights, atol=2e-6, rtol=1e-4)
    torch.testing.assert_close(four.optimizer, one.optimizer, atol=2e-6, rtol=1e-3)
    if LONG:
        out = site.fresh()
        assert {one.status for one in start(site, out, "--parallel", "ddp", *QUIET)} == {0}
        assert_close(out, sharded)


@pytest.mark.skipif(not LONG, reason="nine processes: make faults")
def test_one_of_four_is_killed(site: Site, sharded: Path) -> None:
    """Four go on to the same bits; one alone goes on from their shards."""
    for number in [site.moment("rename", "step-8"), *sample(len(site.moments), 8, many=8)]:
        out = site.fresh()
        found = start(site, out, "--parallel", "fsdp", *QUIET, rank=0, kind="send", folder=str(out), number=number,
                      signals=[signal.SIGKILL])  # fmt: skip
        assert found[0].status in (0, -signal.SIGKILL), found
        alone = site.fresh()
        shutil.copytree(out, alone)
        again = start(site, out, "--parallel", "fsdp", *QUIET)
        assert [one.status for one in again] == [0] * SIZE, again
        differences = compare(sharded, out)
        site.tally.count("kill -9 of one process of four (fsdp)", wrong=bool(differences))
        assert not differences
        done = site.run(alone, *QUIET)
        assert done.status == 0 and done.resumed == again[0].resumed, done
        assert_close(sharded, alone)


def test_every_shard_is_checked(sharded: Path, tmp_path: Path) -> None:
    """A changed byte, a lost file, and a manifest without its shards are damages."""
    folder = sharded / "checkpoints"
    files = sorted((folder / f"step-{STEPS}" / "shards").iterdir())
    assert len(files) > 1
    for harm in ("flip", "lose", "forget"):
        copy = tmp_path / harm
        shutil.copytree(folder, copy)
        path = copy / f"step-{STEPS}" / "shards" / files[1].name
        manifest = copy / f"step-{STEPS}" / "manifest.json"
        if harm == "flip":
            content = bytearray(path.read_bytes())
            content[-3] ^= 1
            path.write_bytes(content)
        elif harm == "lose":
            path.unlink()
        else:
            manifest.write_text(json.dumps({"state.json": json.loads(manifest.read_text())["state.json"]}))
        found, messages = Checkpoints(copy).newest()
        assert found == STEPS - EVERY
        assert "is damaged" in messages[0]
