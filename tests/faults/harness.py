"""Runs real osbert processes, does them harm, and keeps the tally: faults tried, steps lost, wrong results."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import corpora
from clock import CLOCK
from osbert.corpus import build
from osbert.reading import documents as readers
from vocabularies import train

T = TypeVar("T")

LONG = os.environ.get("OSBERT_FAULTS") == "long"
"""Whether many faults of each kind are tried (`make faults`) or a few (`make test`)."""
STEPS, EVERY = 12, 4
SETTINGS = f"""
objectives = ["mlm", "nsp"]
[model]
layers = 1
width = 16
heads = 2
length = 32
[data]
batch = 6
micro_tokens = 100
length = 24
long_share = 0.3
long_length = 32
[optimizer]
learning_rate = 5e-3
[training]
steps = {STEPS}
log_every = 1
checkpoint_every = {EVERY}
evaluate_every = 6
precision = "fp32"
device = "cpu"
"""
SEED = os.environ.get("OSBERT_FAULTS_SEED") or str(random.randrange(10**9))
"""Decides all moments that are left to chance; a test that fails tells it."""
CHANCE = random.Random()
"""Draws the moments, in each test from a beginning of its own (see conftest.py)."""
SECONDS = 120.0
"""No command of these takes as long."""


class Zygote:
    """Starts osbert processes by way of zygote.py."""

    def __init__(self) -> None:
        """Start it; it takes as long as importing torch does."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "PYTHONFAULTHANDLER": "0"}
        command = [sys.executable, str(Path(__file__).with_name("zygote.py"))]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, **request: Any) -> Any:
        """Return the answer to one request."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        """End it, and the children that are left."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait(timeout=30)
        self.process.stdout.close()


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a process ended: `status` is minus the signal's number when a signal ended it."""

    status: int
    output: str

    def __str__(self) -> str:
        """Return what a failing assertion shows."""
        return f"status {self.status}\n{self.output}"

    @property
    def resumed(self) -> int:
        """Return the step that the process went on from, 0 when it began anew."""
        found = re.search(r"Going on from the checkpoint of step ([\d,]+)", self.output)
        return int(found.group(1).replace(",", "")) if found else 0


class Child:
    """An osbert process that has been started."""

    def __init__(self, zygote: Zygote, words: Sequence[str], *, output: Path, fault: Mapping[str, Any], **env: str):
        """Start it with one fault."""
        self.zygote = zygote
        self.output = output
        output.unlink(missing_ok=True)
        request = {"words": list(words), "output": str(output), "environment": env, "fault": dict(fault)}
        # Seen when a test fails.
        print(f"osbert {' '.join(words)}\n  in {output}, with the fault {dict(fault) or None}")
        self.pid: int = zygote.ask(**request)["pid"]

    def wait(self, seconds: float = SECONDS) -> Ended | None:
        """Return how it ended, None when it has not in so many seconds."""
        status = self.zygote.ask(pid=self.pid, seconds=seconds)["status"]
        text = self.output.read_text(encoding="utf-8", errors="replace") if self.output.exists() else ""
        return None if status is None else Ended(status, text)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def ended(self) -> Ended:
        """Wait for its end; one that does not come is a failure."""
        found = self.wait()
        if found is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()
            raise AssertionError(f"it hangs:\n{self.output.read_text()}")
        return found


class Tally:
    """What has been tried and what it cost, by kind of fault."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.rows: dict[str, dict[str, int]] = {}

    def count(self, kind: str, *, lost: int = 0, wrong: int = 0) -> None:
        """Count a fault, the steps that had to be taken again, and whether the result was wrong."""
        row = self.rows.setdefault(kind, {"tried": 0, "lost": 0, "most": 0, "wrong": 0})
        row["tried"] += 1
        row["lost"] += lost
        row["most"] = max(row["most"], lost)
        row["wrong"] += wrong


class Site:
    """A folder in which runs are begun, harmed and gone on with; what they must end in is known."""

    def __init__(self, folder: Path, zygote: Zygote, tally: Tally) -> None:
        """Make the recipe and the corpus."""
        self.folder = folder
        self.zygote = zygote
        self.tally = tally
        self.recipe = folder / "tiny.toml"
        self.recipe.write_text(SETTINGS, encoding="utf-8")
        self.corpus = build_corpus(folder, seed=0)
        self.numbers = iter(range(10**9))

    @functools.cached_property
    def undisturbed(self) -> Path:
        """A run that was left in peace."""
        done = self.run(out := self.folder / "undisturbed")
        assert done.status == 0, done
        return out

    def fresh(self) -> Path:
        """Return a run folder that is not there yet."""
        return self.folder / f"run-{next(self.numbers)}"

    def words(self, out: Path, *settings: str, corpus: Path | None = None) -> list[str]:
        """Return the command line of a run."""
        places = ["--corpus", str(corpus or self.corpus), "--out", str(out)]
        return ["pretrain", str(self.recipe), *places, *settings]

    def start(self, out: Path, *settings: str, corpus: Path | None = None, **fault: Any) -> Child:
        """Start a run, with a fault."""
        output = self.folder / f"{out.name}.txt"
        return Child(self.zygote, self.words(out, *settings, corpus=corpus), output=output, fault=fault)

    def run(self, out: Path, *settings: str, corpus: Path | None = None, **fault: Any) -> Ended:
        """Run to the end, with a fault."""
        return self.start(out, *settings, corpus=corpus, **fault).ended()

    @functools.cached_property
    def moments(self) -> list[str]:
        """The changes to the disk that an undisturbed run makes, one line each: their kind and the path."""
        log, out = self.folder / "moments.txt", self.fresh()
        done = self.run(out, kind="count", folder=str(out), log=str(log))
        assert done.status == 0, done
        shutil.rmtree(out)
        return log.read_text(encoding="utf-8").splitlines()

    def moment(self, *words: str, nth: int = 0) -> int:
        """Return the number of the first moment, or a later one, whose line has all these words."""
        return [place for place, line in enumerate(self.moments, start=1) if all(word in line for word in words)][nth]

    def complete(self, kind: str, out: Path, *settings: str, most: int = EVERY) -> Ended:
        """Give the command again without a fault; it must end in the undisturbed run's bits. Counts a fault.

        At most `most` steps may have to be taken again.
        """
        reached = steps_taken(out)
        done = self.run(out, *settings)
        lost = max(0, reached - done.resumed) if "nothing is left to do" not in done.output else 0
        differences = compare(self.undisturbed, out) if done.status == 0 else [f"status {done.status}"]
        self.tally.count(kind, lost=lost, wrong=bool(differences))
        assert not differences, f"{differences}\n{done}"
        assert lost <= most, f"{lost} steps lost\n{done}"
        assert "Traceback" not in done.output, done
        shutil.rmtree(out)
        return done


def sample(count: int, few: int, *, many: int = 10**9) -> list[int]:
    """Return `few` of the numbers 1..count, evenly apart and others each time; in the long form `many`, or all."""
    few = min(count, many if LONG else few)
    bounds = [count * part // few for part in range(few + 1)]
    return [CHANCE.randint(low + 1, high) for low, high in itertools.pairwise(bounds)]


def some(*values: T) -> tuple[T, ...]:
    """Return all of some values; in the short form only the first."""
    return values if LONG else values[:1]


def compare(whole: Path, cut: Path) -> list[str]:
    """Return how a run folder differs from that of an undisturbed run, clocks apart."""
    differences = [
        f"{name} differs"
        for name in ("model.safetensors", "config.json", "recipe.toml", "vocab.txt", "tokenizer.json")
        if (whole / name).read_bytes() != (cut / name).read_bytes()
    ]
    if metrics(whole) != metrics(cut):
        differences.append("metrics.jsonl differs")
    left = [path.name for path in cut.rglob("*") if path.name.endswith((".unfinished", ".part"))]
    if left:
        differences.append(f"left behind: {left}")
    names = {path.name for path in cut.iterdir()} ^ {path.name for path in whole.iterdir()}
    return differences + [f"{name} is in one folder only" for name in sorted(names)]


def metrics(out: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics without what depends on the clock."""
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in line.items() if name not in CLOCK} for line in lines]


def steps_taken(out: Path) -> int:
    """Return the step that the last whole line of metrics speaks of, 0 when there is none."""
    path = out / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    found = [int(match.group(1)) for line in lines if (match := re.match(r'\{"step": (\d+),.*\}$', line))]
    return max(found, default=0)


def build_corpus(folder: Path, *, seed: int, shard_tokens: int = 1000) -> Path:
    """Build a corpus of 60 documents on invented topics, in several shards."""
    documents = corpora.invented(seed=seed)
    with patch.object(build, "PORTION", 3000), patch.object(readers, "CHUNK", 700):  # else all would be one shard
        return corpora.build_corpus(folder, documents, train(documents, vocabulary=120), shard_tokens=shard_tokens)
