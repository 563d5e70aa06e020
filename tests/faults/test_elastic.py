"""torchrun restarts a run by itself: after a killed process with as many, after a lost node with fewer, and with more.

Restarting takes torchrun half a minute of imports and time-outs, so all of it is for `make faults`.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from harness import LONG, Site, compare, metrics, steps_taken
from safetensors.torch import load_file

pytestmark = pytest.mark.skipif(not LONG, reason="torchrun starts Python anew many times: make faults")
SECONDS = 600.0
STEPS, EVERY = 60, 20
PACE = ("--steps", str(STEPS), "--checkpoint-every", str(EVERY), "--evaluate-every", "0")
ALIKE = ("--data.micro-tokens", "0", "--dropout", "0", "--attention-dropout", "0")
"""All numbers of processes compute the same, to rounding."""
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""torchrun (torch 2.13) otherwise keeps the store of its first start, and a node that joins never gets the address."""
PATIENT = "keep_alive_interval=2,keep_alive_max_attempt=5,last_call_timeout=40"
"""A lost node is noticed after ten seconds; 40 seconds are left for another one to come."""
CLOSING = "closing signal SIGTERM"
"""torchrun's words when it ends a process, to start it again."""


class Node:
    """A torchrun with some osbert processes, in a session of its own."""

    def __init__(self, words: Sequence[str], output: Path, *options: str, processes: int, **variables: str) -> None:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), *options]
        environment = {**os.environ, **variables, "OMP_NUM_THREADS": "1"}
        with output.open("w") as file:
            self.process = subprocess.Popen(
                [*command, "-m", "osbert", *words],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        self.output = output

    def workers(self) -> list[int]:
        """Return the process ids of its osbert processes."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its osbert processes."""
        for pid in self.workers():
            os.kill(pid, number)

    def vanish(self) -> None:
        """End it and its processes at once."""
        for pid in (self.process.pid, *self.workers()):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def finish(self) -> str:
        """Wait for its end in good order, and return its output."""
        status = self.process.wait(SECONDS)
        assert status == 0, self.output.read_text()
        return self.output.read_text()


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    """Nodes that are ended with the test."""
    made: list[Node] = []
    yield made
    for node in made:
        if node.process.poll() is None:
            node.vanish()


def listens(endpoint: str) -> bool:
    """Return whether something accepts connections at an endpoint."""
    host, _, port = endpoint.partition(":")
    with socket.socket() as door:
        return door.connect_ex((host, int(port))) == 0


def wait_for(out: Path, step: int, node: Node) -> None:
    """Wait until the run in `out` has taken a step."""
    deadline = time.monotonic() + SECONDS
    while steps_taken(out) < step:
        assert node.process.poll() is None and time.monotonic() < deadline, node.output.read_text()
        time.sleep(0.005)


def assert_close(whole: Path, out: Path) -> None:
    """The same weights and the same curve, to the rounding of sums over another number of processes."""
    expected, found = load_file(whole / "model.safetensors"), load_file(out / "model.safetensors")
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)
    for left, right in zip(metrics(whole), metrics(out), strict=True):
        assert left["step"] == right["step"] and left.keys() == right.keys()
        for name in (name for name in left if name.endswith("loss")):
            np.testing.assert_allclose(right[name], left[name], rtol=1e-3, err_msg=name)


def test_a_killed_process_is_replaced_and_the_bits_are_the_same(site: Site, nodes: list[Node]) -> None:
    """Three processes; one of them is killed twice. torchrun starts all of them again."""
    whole, out = site.fresh(), site.fresh()
    for place, folder in enumerate((whole, out)):
        options = ("--standalone", "--max-restarts", "3")
        nodes.append(Node(site.words(folder, *PACE), site.folder / f"elastic-{place}.txt", *options, processes=3))
        for rank, step in ((2, EVERY + 2), (0, 2 * EVERY + 2)) if folder is out else ():
            wait_for(out, step, nodes[-1])
            os.kill(nodes[-1].workers()[rank], signal.SIGKILL)
        said = nodes[-1].finish()
    assert f"Going on from the checkpoint of step {EVERY}." in said
    assert f"Going on from the checkpoint of step {2 * EVERY}." in said
    differences = compare(whole, out)
    site.tally.count("torchrun replaces a killed process of three", wrong=bool(differences))
    assert not differences


def test_a_node_is_lost_and_another_joins(site: Site, nodes: list[Node]) -> None:
    """Two nodes of two processes: 4, then 2, then 4 again. A node that joins costs no step: all stop in good order."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    out = site.fresh()

    def start(name: str) -> Node:
        options = ("--nnodes", "1:2", "--max-restarts", "9", "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint,
                   "--rdzv-id", "elastic", "--rdzv-conf", PATIENT)  # fmt: skip
        words, output = site.words(out, *PACE, *ALIKE), site.folder / f"{name}.txt"
        nodes.append(Node(words, output, *options, processes=2, **OWN_STORE))
        return nodes[-1]

    first = start("first")
    while not listens(endpoint):  # the node that comes first keeps the store, and must not be the one that is lost
        assert first.process.poll() is None, first.output.read_text()
        time.sleep(0.05)
    second = start("second")
    wait_for(out, EVERY + 2, first)
    second.vanish()
    time.sleep(1)
    reached = steps_taken(out)
    wait_for(out, reached + 2, first)
    first.signal(signal.SIGSTOP)  # else the run may end while the third one still starts
    asked = first.output.read_text().count(CLOSING)
    third = start("third")
    while first.output.read_text().count(CLOSING) < asked + 2:
        assert first.process.poll() is third.process.poll() is None, third.output.read_text()
        time.sleep(0.05)
    first.signal(signal.SIGCONT)
    said = first.finish() + third.finish()
    assert "4 processes" in said and "2 processes" in said
    assert "processes: 4 -> 2" in said and "processes: 2 -> 4" in said, said
    whole = site.fresh()
    assert site.run(whole, *PACE, *ALIKE).status == 0
    assert_close(whole, out)
    assert "Stopped after step" in said, said
    site.tally.count("torchrun goes on with fewer nodes, and with more")
