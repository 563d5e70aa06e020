"""Four processes on two nodes: hybrid sharding trains as replicas do, and a lost process costs no more than steps."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import LONG, Child, Ended, Site, compare, metrics
from safetensors.torch import load_file

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


def test_hybrid_sharding_trains_as_replicas_do(site: Site) -> None:
    """Equal losses at every step and equal weights; and after kill -9 of the first process the same bits."""
    runs = {kind: site.fresh() for kind in ("ddp", "hybrid")}
    for kind, out in runs.items():
        found = start(site, out, "--parallel", kind, *QUIET)
        assert [one.status for one in found] == [0] * SIZE, found
    assert "4 processes (hybrid)" in found[0].output
    for left, right in zip(metrics(runs["ddp"]), metrics(runs["hybrid"]), strict=True):
        assert left.keys() == right.keys()
        for name in left:
            np.testing.assert_allclose(right[name], left[name], rtol=1e-4, err_msg=name)
    weights = [load_file(out / "model.safetensors") for out in runs.values()]
    torch.testing.assert_close(weights[1], weights[0], atol=2e-6, rtol=1e-4)
    out, number = site.fresh(), site.moment("rename", "step-8")
    found = start(site, out, "--parallel", "hybrid", *QUIET, rank=0, kind="send", folder=str(out), number=number,
                  signals=[signal.SIGKILL])  # fmt: skip
    assert found[0].status == -signal.SIGKILL, found
    again = start(site, out, "--parallel", "hybrid", *QUIET)
    assert [one.status for one in again] == [0] * SIZE, again
    differences = compare(runs["hybrid"], out)
    site.tally.count("kill -9 of one process of four (hybrid)", wrong=bool(differences))
    assert not differences


def test_uneven_nodes_are_refused(site: Site) -> None:
    if not LONG:
        return
    found = start(site, site.fresh(), "--parallel", "hybrid", *QUIET, node=3)
    assert all(one.status == 1 for one in found), found
    assert "hybrid needs nodes with equally many processes" in "".join(one.output for one in found)
