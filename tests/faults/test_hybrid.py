"""Four processes on two nodes: hybrid sharding trains as replicas do, and a lost process costs no more than steps."""

from __future__ import annotations

import json
import shutil
import signal
import socket
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import EVERY, LONG, Child, Ended, Site, compare, metrics
from safetensors.torch import load_file

from osbert.training.checkpoint import Checkpoints

SIZE, NODE = 4, 2
QUIET = ("--dropout", "0", "--attention-dropout", "0", "--data.micro-tokens", "0")
"""Random numbers depend on passes and processes."""


def start(site: Site, out: Path, *settings: str, node: int = NODE, rank: int = -1, **fault: Any) -> list[Ended]:
    """Run to the end in four processes, as torchrun starts them on nodes of `node`; one of them with a fault."""
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
            LOCAL_RANK=str(number % node),
            LOCAL_WORLD_SIZE=str(node),
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


def test_hybrid_sharding_trains_as_replicas_do(site: Site) -> None:
    """And after kill -9 of the first process in the same bits; one process goes on from the shards of four."""
    runs = {kind: site.fresh() for kind in ("ddp", "hybrid")}
    for kind, out in runs.items():
        found = start(site, out, "--parallel", kind, *QUIET)
        assert [one.status for one in found] == [0] * SIZE, found
    assert "4 processes (hybrid)" in found[0].output
    assert_close(*runs.values())
    out, number = site.fresh(), site.moment("rename", "step-8")
    found = start(site, out, "--parallel", "hybrid", *QUIET, rank=0, kind="send", folder=str(out), number=number,
                  signals=[signal.SIGKILL])  # fmt: skip
    assert found[0].status == -signal.SIGKILL, found
    alone = site.fresh()
    shutil.copytree(out, alone)
    again = start(site, out, "--parallel", "hybrid", *QUIET)
    assert [one.status for one in again] == [0] * SIZE, again
    differences = compare(runs["hybrid"], out)
    site.tally.count("kill -9 of one process of four (hybrid)", wrong=bool(differences))
    assert not differences
    done = site.run(alone, *QUIET)
    assert done.status == 0 and done.resumed == again[0].resumed == EVERY, done
    assert_close(runs["ddp"], alone)


def test_every_shard_is_checked_and_read_in_full(site: Site, tmp_path: Path) -> None:
    """A changed byte, a lost file, and a manifest without its shards are damages."""
    out = site.fresh()
    assert [one.status for one in start(site, out, "--parallel", "fsdp", *QUIET)] == [0] * SIZE
    folder = out / "checkpoints"
    step = max(Checkpoints(folder).steps())
    files = sorted((folder / f"step-{step}" / "shards").iterdir())
    assert len(files) == SIZE
    read = Checkpoints(folder).read(step)
    model = load_file(out / "model.safetensors")
    assert sum(one.numel() for one in read.weights.values()) >= sum(one.numel() for one in model.values())
    assert {*read.optimizer} == {
        f"{kind}/{name}" for name in read.weights for kind in ("exp_avg", "exp_avg_sq", "step")
    }
    for harm in ("flip", "lose", "forget"):
        copy = tmp_path / harm
        shutil.copytree(folder, copy)
        path = copy / f"step-{step}" / "shards" / files[1].name
        manifest = copy / f"step-{step}" / "manifest.json"
        if harm == "flip":
            content = bytearray(path.read_bytes())
            content[-3] ^= 1
            path.write_bytes(content)
        elif harm == "lose":
            path.unlink()
        else:
            manifest.write_text(json.dumps({"state.json": json.loads(manifest.read_text())["state.json"]}))
        found, messages = Checkpoints(copy).newest()
        assert found == step - EVERY
        assert "is damaged" in messages[0]


def test_uneven_nodes_are_refused(site: Site) -> None:
    if not LONG:
        return
    found = start(site, site.fresh(), "--parallel", "hybrid", *QUIET, node=3)
    assert all(one.status == 1 for one in found), found
    assert "hybrid needs nodes with equally many processes" in "".join(one.output for one in found)
