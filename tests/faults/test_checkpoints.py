"""Every byte of a checkpoint cut off or changed: it is noticed, the one before is used, and the end is the same."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from harness import EVERY, LONG, STEPS, Site, sample

from osbert.training.checkpoint import Checkpoints

FILES = ("weights.safetensors", "optimizer.safetensors", "state.json", "manifest.json")


@pytest.fixture(scope="module")
def finished(whole_site: Site) -> Path:
    """A run killed when all steps were done, before its model was written: its checkpoints are of steps 8 and 12."""
    out = whole_site.fresh()
    number = whole_site.moment("save", ".model.safetensors")
    ended = whole_site.run(out, kind="send", folder=str(out), number=number, signals=[signal.SIGKILL])
    assert ended.status == -signal.SIGKILL, ended
    return out


def places(size: int) -> list[int]:
    """Return the places of a file that are tried: all of a small one, else every 61st."""
    return [place - 1 for place in sample(size, 12)] if not LONG or size < 2000 else [*range(0, size, 61), size - 1]


def harms(content: bytes) -> Iterator[bytes]:
    """Yield the content cut at, and changed in, each of these places."""
    for place in places(len(content)):
        yield content[:place]
        for bits in (0x01, 0x20, 0xFF):
            yield content[:place] + bytes([content[place] ^ bits]) + content[place + 1 :]


@pytest.mark.parametrize("name", FILES)
def test_every_byte_matters(site: Site, finished: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "checkpoints"
    shutil.copytree(finished / "checkpoints", folder)
    checkpoints = Checkpoints(folder)
    path = folder / f"step-{STEPS}" / name
    content, whole = path.read_bytes(), checkpoints.read(STEPS)
    for harmed in harms(content):
        path.write_bytes(harmed)
        step, messages = checkpoints.newest()
        if step == STEPS:  # only blanks of the manifest may be other ones
            assert name == "manifest.json" and harmed.split() == content.split()
            assert not messages
        else:
            assert step == STEPS - EVERY
            assert f"step-{STEPS} is damaged" in messages[0]
            (folder / f"damaged-step-{STEPS}").rename(folder / f"step-{STEPS}")
        path.write_bytes(content)
        site.tally.count(f"checkpoint: a byte of {name} lost or changed", lost=0 if step == STEPS else EVERY)
    again = checkpoints.read(checkpoints.newest()[0])
    assert all(torch.equal(tensor, again.weights[key]) for key, tensor in whole.weights.items())


def copy(site: Site, finished: Path) -> Path:
    out = site.fresh()
    shutil.copytree(finished, out)
    return out


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", ["half", "flip", "gone"])
def test_a_run_goes_on_from_the_one_before(site: Site, finished: Path, name: str, harm: str) -> None:
    if not LONG and FILES.index(name) % 3 != ["half", "flip", "gone"].index(harm):
        pytest.skip("one harm to each file is enough here: make faults")
    out = copy(site, finished)
    path = out / "checkpoints" / f"step-{STEPS}" / name
    content = path.read_bytes()
    path.unlink()
    if harm != "gone":
        middle = len(content) // 2
        path.write_bytes(content[:middle] + (bytes([content[middle] ^ 1]) + content[middle + 1 :]) * (harm == "flip"))
    done = site.complete("damaged checkpoint", out)
    assert done.resumed == STEPS - EVERY
    assert f"step-{STEPS} is damaged (" in done.output
    assert "Traceback" not in done.output


def test_a_kill_while_the_checkpoint_of_the_same_step_is_written_again(site: Site, tmp_path: Path) -> None:
    """With one checkpoint kept, it and the new one are all that there is."""
    log, out, step = tmp_path / "moments", site.fresh(), f"step-{2 * EVERY}"
    assert site.run(out, "--keep", "1", kind="count", folder=str(out), log=str(log), twice=True).status == 0
    lines = log.read_text().splitlines()
    first, second = (n for n, line in enumerate(lines, start=1) if "os.rename" in line and f"{step}.unfinished" in line)
    others = [n for n in range(first + 1, len(lines)) if step in lines[n - 1] and n != second]
    for number in [second, *(others[place - 1] for place in sample(len(others), 1))]:
        out = site.fresh()
        fault = {"folder": str(out), "number": number, "torn": True, "twice": True}
        ended = site.run(out, "--keep", "1", kind="send", signals=[signal.SIGKILL], **fault)
        assert ended.status == -signal.SIGKILL, f"moment {number}: {ended}"
        site.complete("kill -9 while a checkpoint is written again", out)


def test_all_damaged_is_told_and_nothing_is_thrown_away(site: Site, finished: Path) -> None:
    out = copy(site, finished)
    for step in (STEPS, STEPS - EVERY):
        (out / "checkpoints" / f"step-{step}" / FILES[0]).write_bytes(b"")
    ended = site.run(out)
    assert ended.status == 1, ended
    assert "No checkpoint is left that can be used" in ended.output
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == [f"damaged-step-{STEPS}", "damaged-step-8"]
    site.tally.count("damaged checkpoints, all of them")


def test_a_harmed_run_file_is_told(site: Site, finished: Path) -> None:
    out = copy(site, finished)
    (out / "run.json").write_bytes((out / "run.json").read_bytes()[:-40])
    ended = site.run(out)
    assert ended.status == 1, ended
    assert "run.json" in ended.output and "Traceback" not in ended.output, ended
    site.tally.count("harmed run.json")
