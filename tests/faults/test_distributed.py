"""Two processes that train together: one is killed, the other ends with a word, and both go on to the same bits."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from harness import EVERY, LONG, SECONDS, STEPS, Child, Ended, Site, compare, sample, some, steps_taken
from safetensors.torch import load_file

from object_store import QUIET, variables

NONE: Mapping[str, str] = {}


def start(
    site: Site, out: Path | str, *settings: str, rank: int | None = None, store: Mapping[str, str] = NONE, **fault: Any
) -> list[Child]:
    """Start two processes as torchrun does, one of them with a fault. `store`: variables of an object store."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [
        Child(
            site.zygote,
            site.words(out, *settings),
            output=site.folder / f"{Path(out).name}-{number}.txt",
            fault=fault if number == rank else {},
            RANK=str(number),
            LOCAL_RANK=str(number),
            **shared,
            **store,
        )
        for number in range(2)
    ]


def ended(children: list[Child]) -> list[Ended]:
    return [child.ended() for child in children]


@pytest.fixture(scope="module", params=some("ddp", "fsdp"))
def pair(request: pytest.FixtureRequest, whole_site: Site) -> tuple[str, Path]:
    """A run of two processes that was left in peace."""
    out = whole_site.fresh()
    for one in ended(start(whole_site, out, "--parallel", request.param)):
        assert one.status == 0, one
    return request.param, out


@pytest.mark.parametrize("rank", [0, 1])
def test_one_of_two_is_killed(site: Site, pair: tuple[str, Path], rank: int) -> None:
    kind, whole = pair
    moments = sample(len(site.moments), 2)[1:] if not LONG else sample(len(site.moments), 145)[7::14]
    for number in moments:
        out = site.fresh()
        if rank == 0:  # it writes for both, so that its moments are known
            children = start(site, out, "--parallel", kind, rank=0, kind="send", folder=str(out), number=number,
                             signals=[signal.SIGKILL], torn=True)  # fmt: skip
        else:
            children = start(site, out, "--parallel", kind)
            wanted = min(STEPS - 1, max(1, number * STEPS // len(site.moments)))
            while steps_taken(out) < wanted and children[1].wait(0.002) is None:
                pass
            children[1].signal(signal.SIGKILL)
        found = ended(children)
        assert found[rank].status in (0, -signal.SIGKILL), found[rank]
        other = found[1 - rank]
        assert "Traceback" not in other.output, other
        assert other.status in (0, 1), other
        if other.status:
            assert "Another process of this run has ended" in other.output, other
        reached = steps_taken(out)
        again = ended(start(site, out, "--parallel", kind))
        assert [one.status for one in again] == [0, 0], again
        differences = compare(whole, out)
        lost = max(0, reached - again[0].resumed) if "nothing is left" not in again[0].output else 0
        site.tally.count(f"kill -9 of one process of two ({kind})", lost=lost, wrong=bool(differences))
        assert not differences
        assert lost <= EVERY


@pytest.mark.parametrize("rank", some(1, 0))
def test_one_of_two_is_asked_to_stop(site: Site, pair: tuple[str, Path], rank: int) -> None:
    kind, whole = pair
    out = site.fresh()
    children = start(site, out, "--parallel", kind)
    while steps_taken(out) < 2:
        time.sleep(0.002)  # the two processes need both cores
    children[rank].signal(signal.SIGTERM)
    found = ended(children)
    assert [one.status for one in found] == [143, 143], found
    stopped = steps_taken(out)
    again = ended(start(site, out, "--parallel", kind))
    assert again[0].resumed in (stopped, 0), again
    differences = compare(whole, out)
    site.tally.count("SIGTERM to one process of two", wrong=bool(differences))
    assert not differences


def test_one_of_two_says_that_a_setting_is_unknown(site: Site) -> None:
    found = ended(start(site, site.fresh(), "--layerss", "3"))
    assert [one.status for one in found] == [1, 1], found
    assert sorted("Unknown setting --layerss" in one.output for one in found) == [False, True]


def test_memory_that_runs_out_in_one_of_two(site: Site) -> None:
    """Replicas halve their passes together."""
    out = site.fresh()
    found = ended(start(site, out, "--parallel", "ddp", rank=1, kind="narrow", tokens=40))
    assert [one.status for one in found] == [0, 0], found
    assert "Memory ran out at step 1 (in process 1: CUDA out of memory" in found[0].output, found[0]
    assert found[1].output == "", found[1]
    assert steps_taken(out) == STEPS
    site.tally.count("memory that runs out in one process of two")


def test_memory_that_runs_out_in_one_of_two_that_share_their_weights(site: Site) -> None:
    """They cannot leave off together; both say so, and go on in the same folder with smaller passes."""
    out = site.fresh()
    found = ended(start(site, out, "--parallel", "fsdp", rank=1, kind="narrow", tokens=40))
    assert [one.status for one in found] == [1, 1], found
    assert "Another process of this run has ended" in found[0].output, found[0]
    assert "Memory ran out in process 1 (CUDA out of memory" in found[1].output, found[1]
    again = ended(start(site, out, "--parallel", "fsdp", "--data.micro-tokens", "20"))
    assert [one.status for one in again] == [0, 0], again
    assert not any("Traceback" in one.output for one in [*found, *again])
    site.tally.count("memory that runs out in one process of two (fsdp)")


def test_a_speed_that_one_of_two_cannot_test(site: Site) -> None:
    out = site.fresh()
    found = ended(start(site, out, "--minutes", "1", rank=1, kind="fail_pass"))
    assert [one.status for one in found] == [1, 1], found
    assert "Another process of this run has ended" in found[0].output, found[0]
    assert "The speed cannot be tested here." in found[1].output, found[1]
    assert not any("Traceback" in one.output for one in found)


MODEL = ("--direction", "left_to_right", "--positions", "distances", "--segments", "0", "--pooling", "none")
DATA = ("--data.streams", "--data.length", "8", "--data.batch", "4", "--data.micro-tokens", "0", "--long-share", "0")
STREAMS = ("--objectives", "left_to_right", "--model.memory", "12", *MODEL, *DATA)


@pytest.mark.lab
def test_both_are_killed_and_their_memories_come_back(site: Site) -> None:
    whole, out = site.fresh(), site.fresh()
    unharmed = ended(start(site, whole, *STREAMS))
    assert [one.status for one in unharmed] == [0, 0], unharmed
    children = start(site, out, *STREAMS)
    while steps_taken(out) < EVERY + 1 and children[0].wait(0.002) is None:
        pass
    for child in children:
        child.signal(signal.SIGKILL)
    assert [one.status for one in ended(children)] == [-signal.SIGKILL] * 2
    newest = max((out / "checkpoints").glob("step-*"), key=lambda path: int(path.name[5:]))
    assert load_file(newest / "weights.safetensors")["memory.kept.counts"].max() == 12  # all that there is room for
    again = ended(start(site, out, *STREAMS))
    assert [one.status for one in again] == [0, 0] and again[0].resumed >= EVERY, again
    differences = compare(whole, out)
    site.tally.count("kill -9 of both processes, with a memory", wrong=bool(differences))
    assert not differences


@QUIET
@pytest.mark.lab
def test_a_run_of_both_into_a_store_goes_on_on_another_machine(
    site: Site, pair: tuple[str, Path], server: str, tmp_path: Path
) -> None:
    import fsspec

    kind, whole = pair
    files = fsspec.filesystem("s3", endpoint_url=server, key="test", secret="test", use_listings_cache=False)
    files.mkdir(f"store-{kind}")
    address = f"s3://store-{kind}/run"
    before = start(site, address, "--parallel", kind, store=variables(server, tmp_path / "first"))
    while not files.glob(f"{address}/checkpoints/*/manifest.json") and before[0].wait(0.002) is None:
        pass
    for child in before:
        child.signal(signal.SIGKILL)
    ended(before)
    shutil.rmtree(tmp_path / "first")
    again = ended(start(site, address, "--parallel", kind, store=variables(server, tmp_path / "second")))
    assert [one.status for one in again] == [0, 0] and again[0].resumed >= EVERY, again
    files.get(address, str(tmp_path / "one"), recursive=True)
    differences = compare(whole, tmp_path / "one")
    site.tally.count("kill -9 of both processes, whose run lies in a store", wrong=bool(differences))
    assert not differences


@pytest.mark.skipif(not LONG, reason="starts Python anew seven times: make faults")
def test_torchrun_itself(site: Site, pair: tuple[str, Path]) -> None:
    """Started by torchrun, one process killed: torchrun ends with an error, and started again it ends the same."""
    kind, whole = pair
    out = site.fresh()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "osbert"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [*command, *site.words(out, "--parallel", kind)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    while steps_taken(out) < EVERY + 1 and process.poll() is None:
        time.sleep(0.002)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[-1]), signal.SIGKILL)
    told, _ = process.communicate(timeout=SECONDS)
    assert process.returncode, told
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    differences = compare(whole, out)
    site.tally.count(f"kill -9 of one process of torchrun's two ({kind})", wrong=bool(differences))
    assert not differences
