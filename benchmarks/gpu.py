"""The hour on a GPU: stages that test and measure osbert on one H100 or H200, each within its minutes, without network.

    python benchmarks/gpu.py STAGE --out DIR [--seconds N] [--device cuda]      # STAGE: of those below
        [--lengths 128,512] [--sides 'osbert,sdpa bf16']                        # less of base and large, in less time

Before, on a machine with network and no GPU: `make gpu-ready` (tools/gpu_ready.py) puts the packages that the GPU's
machine may lack into build/gpu/wheels, and texts into build/gpu/texts; both must be on that machine, and no other part
of build/. `make gpu` runs the first set of stages, most telling first:

    tests      the tests that need CUDA, one file after the other: varlen beside reference, halving, exact resumption
    base       pretraining of BERT BASE at 128 and 512 tokens beside transformers
    large      the same of BERT LARGE
    encoding   5,000 generated texts to vectors beside transformers

`make gpu-more` runs the further ones:

    generation     osbert beside transformers' generate, greedily and with 4 beams
    flex           flex attention beside varlen and sdpa

`make gpu-recipes` runs those that compare recipes, which leave their models in build/gpu/recipes:

    recipe-paper   bert-paper pretrained for 8 minutes
    recipe-fast    bert-fast pretrained for 8 minutes
    recipe-scores  both fine-tuned on SST-2, MRPC and RTE, or one if the other is not there

A stage starts no measurement after its time is up, and ends a side that does not answer by then. Each measurement is
in DIR/STAGE.json the moment it is made; DIR/STAGE.md has them as rows of tables, and DIR/STAGE.log what the
processes said. The exit status is 1 when something failed, 3 when something was left out, mostly for want of time.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
READY = ROOT / "build" / "gpu"
"""What `make gpu-ready` made: wheels/, and beside it site/, what is taken out of them."""
FAILED, UNFINISHED = 1, 3
PROCESSES = 8
"""How many processes test at a time."""
TESTS = (
    "tests/models/transformer/test_kernels_cuda.py",
    "tests/training/test_cuda.py",
    "tests/end_to_end/test_resume_cuda.py",
    "tests/lab/recipes/test_recipes_cuda.py",
    "tests/training/test_one_process_group.py",
    "tests/inference/test_engine.py",
)
"""The files with tests that need CUDA, most telling first."""


class Clock:
    """The time of a stage: `seconds` from its making."""

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self.now = now
        self.begun = now()

    @property
    def spent(self) -> float:
        return self.now() - self.begun

    @property
    def left(self) -> float:
        return max(0.0, self.seconds - self.spent)


@dataclass
class Account:
    """What a stage has found so far, written anew with each measurement: STAGE.json and, as table rows, STAGE.md."""

    stage: str
    folder: Path
    clock: Clock
    machine: Mapping[str, Any]
    header: Sequence[str]
    measurements: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """What was not begun, for want of time."""

    @property
    def log(self) -> Path:
        return self.folder / f"{self.stage}.log"

    @property
    def status(self) -> int:
        if any("error" in found for found in self.measurements):
            return FAILED
        return UNFINISHED if self.left_out else 0

    def add(self, row: Sequence[str] = (), **found: Any) -> dict[str, Any]:
        """Keep a measurement and its cells of the table; return what is kept, for `change`."""
        self.measurements.append(kept := {**found, "row": list(row), "at": round(self.clock.spent, 1)})
        print(f"{self.clock.spent:6.0f} s  {' | '.join(row) or found.get('error') or found}", flush=True)
        self.write()
        return kept

    def change(self, kept: dict[str, Any], row: Sequence[str], **found: Any) -> None:
        """Bring a measurement that goes on over several rounds up to date."""
        kept.update(found, row=list(row))
        self.write()

    def leave_out(self, what: str, why: str = "time is up") -> None:
        """Note that something is not begun."""
        self.left_out.append(what)
        print(f"{self.clock.spent:6.0f} s  {why}: {what} left out", flush=True)
        self.write()

    def write(self) -> None:
        content = {
            "stage": self.stage,
            "machine": self.machine,
            "seconds": self.clock.seconds,
            "spent": round(self.clock.spent, 1),
            "measurements": self.measurements,
            "left_out": self.left_out,
        }
        rows = [found["row"] for found in self.measurements if found["row"]]
        lines = [self.header, ["---"] * len(self.header), *rows]
        facts = ", ".join(
            str(self.machine[name]) for name in ("gpu", "torch", "transformers") if self.machine.get(name)
        )
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        _replace(self.folder / f"{self.stage}.json", json.dumps(content, indent=1) + "\n")
        _replace(self.folder / f"{self.stage}.md", f"{facts}\n\n{table}\n")


def _replace(path: Path, text: str) -> None:
    """Write a file so that a reader, or a kill, never meets half of it."""
    aside = path.with_name(f".{path.name}.part")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def provide(ready: Path) -> list[str]:
    """Make the code and the packages that this Python lacks importable, here and in processes started from here.

    Returns the packages taken out of the wheels in `ready`.
    """
    found = []
    site = ready / "site"
    for wheel in sorted((ready / "wheels").glob("*.whl")):
        name = wheel.name.partition("-")[0]
        if not _installed(name):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)
            found.append(name)
    paths = [str(ROOT / "src"), *([str(site)] if site.is_dir() else [])]
    sys.path[1:1] = paths
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, *([before] if before else [])])
    return found


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def machine(device: str) -> dict[str, Any]:
    """Return what the figures depend on: the GPU, and versions."""
    import torch

    found: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name() if device == "cuda" else f"none ({platform.machine()})"
    }
    if device == "cuda":
        found["memory_gb"] = round(torch.cuda.get_device_properties(0).total_memory / 1e9, 1)
        found["cuda"] = torch.version.cuda
    found["python"] = platform.python_version()
    for name in ("torch", "triton", "transformers", "tokenizers", "numpy"):
        if _installed(name):
            found[name] = f"{name} {importlib.metadata.version(name)}"
    found["commit"] = _commit()
    return found


def _commit() -> str:
    """Return the commit, where git and the history travelled along."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    with contextlib.suppress(OSError):
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return ""


def run_tests(account: Account, chosen: argparse.Namespace) -> None:
    """Run the files of tests that need a GPU."""
    for name in TESTS:
        if not account.clock.left:
            account.leave_out(name)
            continue
        # Another machine's packages may warn of other things: that is seen in the log, and fails nothing.
        options = ["-vv", "--tb=short", "-o", "filterwarnings=default", "-p", "no:cacheprovider"]
        if _installed("pytest-xdist"):
            options += ["-n", str(PROCESSES)]  # most of their time is compiling, each in one thread
        started = account.clock.spent
        with account.log.open("a", encoding="utf-8") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", str(ROOT / name), *options],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
                text=True,
            )
            lines = list(_lines(process, account.clock, log))
        counts = _counts(lines)
        error = _verdict(process.returncode, counts, lines)
        seconds = account.clock.spent - started
        row = [name, *(str(counts[kind]) for kind in ("PASSED", "FAILED", "SKIPPED")), f"{seconds:.0f} s"]
        failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        account.add(row, tests=name, seconds=round(seconds, 1), **counts, failed=failed, **error)


def _lines(process: subprocess.Popen[str], clock: Clock, log: Any) -> Iterator[str]:
    """Yield what a process says, writing it to a log as it comes; the process is killed when time is up."""
    timer = threading.Timer(clock.left, process.kill)
    timer.start()
    with process:
        assert process.stdout
        for line in process.stdout:
            log.write(line)
            log.flush()
            yield line.rstrip("\n")
    timer.cancel()


def _counts(lines: Sequence[str]) -> dict[str, int]:
    """Return how many tests passed, failed and so on, by the line that pytest writes when each ends."""
    counts = dict.fromkeys(("PASSED", "FAILED", "ERROR", "SKIPPED"), 0)
    kinds = "|".join(counts)
    for line in lines:
        # Of several processes the outcome comes first: "[gw0] [  9%] PASSED tests/...".
        if found := re.search(rf"\.py::\S+ ({kinds})\b|\] ({kinds}) \S+\.py::", line):
            counts[found[1] or found[2]] += 1
    return counts


def _verdict(status: int | None, counts: Mapping[str, int], lines: Sequence[str]) -> dict[str, str]:
    """Return what is wrong with a file of tests, if anything is."""
    if status == 0:
        return {}
    if status == -9:
        return {"error": "time was up before the tests had ended"}
    last = next((line for line in reversed(lines) if line.strip()), "nothing was printed")
    return {"error": f"{counts['FAILED']} failed, {counts['ERROR']} broke: {last}"}


def run_pretraining(account: Account, chosen: argparse.Namespace) -> None:
    """Measure pretraining steps beside transformers, at each length."""
    import gpu_pretraining

    gpu_pretraining.measure(account, chosen)


def run_encoding(account: Account, chosen: argparse.Namespace) -> None:
    """Measure texts to vectors beside transformers."""
    import gpu_encoding

    gpu_encoding.measure(account, chosen)


def run_generation(account: Account, chosen: argparse.Namespace) -> None:
    """Measure texts that are written beside transformers."""
    import gpu_generation

    gpu_generation.measure(account, chosen)


def run_flex(account: Account, chosen: argparse.Namespace) -> None:
    """Measure flex attention beside osbert's kernels."""
    import gpu_flex

    gpu_flex.measure(account, chosen)


def run_recipes(account: Account, chosen: argparse.Namespace) -> None:
    """Pretrain by a recipe for minutes, or measure what that was worth."""
    import gpu_recipes

    gpu_recipes.measure(account, chosen)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A stage, the seconds it may take, and the head of its table."""

    run: Callable[[Account, argparse.Namespace], None]
    seconds: int
    header: Sequence[str]


SPEED = (
    "model, tokens",
    "side",
    "tokens/s",
    "osbert over it",
    "share of peak",
    "GPU memory, MB",
    "compiling and warming, s",
)
PRETRAINED = ("recipe", "minutes", "steps", "tokens", "held-out MLM loss", "right", "NSP")
STAGES = {
    "tests": Stage(run=run_tests, seconds=390, header=("tests", "passed", "failed", "skipped", "time")),
    "base": Stage(run=run_pretraining, seconds=330, header=SPEED),
    "large": Stage(run=run_pretraining, seconds=390, header=SPEED),
    "encoding": Stage(
        run=run_encoding,
        seconds=210,
        header=("model", "side", "texts/s", "osbert over it", "GPU memory, MB", "smallest cosine"),
    ),
}
"""The first set, in the order of what they tell; together 22 minutes."""
MORE = {
    "generation": Stage(
        run=run_generation,
        seconds=300,
        header=("texts", "beams", "osbert, pieces/s", "transformers", "osbert over it", "the same text"),
    ),
    "flex": Stage(
        run=run_flex,
        seconds=180,
        header=("lengths up to", "kernel", "ms a pass", "first pass, s", "largest distance from reference"),
    ),
    "recipe-paper": Stage(run=run_recipes, seconds=535, header=PRETRAINED),
    "recipe-fast": Stage(run=run_recipes, seconds=535, header=PRETRAINED),
    "recipe-scores": Stage(run=run_recipes, seconds=500, header=("recipe", "seeds", "SST-2", "MRPC", "MRPC F1", "RTE")),
}
"""The further stages."""


def run(chosen: argparse.Namespace) -> int:
    """Run a stage and return its exit status."""
    stage = (STAGES | MORE)[chosen.stage]
    provided = provide(chosen.ready)
    chosen.out.mkdir(parents=True, exist_ok=True)
    clock = Clock(stage.seconds if chosen.seconds is None else chosen.seconds)
    account = Account(chosen.stage, chosen.out, clock, {}, stage.header)
    account.log.write_text("", encoding="utf-8")
    try:
        account.machine = machine(chosen.device) | {"from_wheels": provided}
        account.write()
        stage.run(account, chosen)
    except Exception as error:  # what was measured before stays, and the file says what ended it
        account.add(error=f"{type(error).__name__}: {error}")
        raise
    finally:
        account.write()
    return account.status


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=[*STAGES, *MORE])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, help="the stage's own: see STAGES and MORE")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--ready", type=Path, default=READY, help="the folder that make gpu-ready made")
    parser.add_argument("--lengths", default="128,512", help="of base and large")
    parser.add_argument("--sides", default="", help="of base and large; those named warm up beside each other")
    parser.add_argument("--minutes", type=float, default=8.0, help="of recipe-paper and recipe-fast")
    parser.add_argument("--small", action="store_true", help="tiny models, for a look at the script itself")
    return run(parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
