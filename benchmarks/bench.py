"""How fast osbert is on this machine beside what one would use instead: short measurements, one table (20 minutes).

    python benchmarks/bench.py [--data ../shared/data] [--out build/bench.md] [--stages encoding,search]

Each stage is another script of this folder with few rounds; its docstring says what is compared, and its own options
measure longer. Ratios above 1: osbert is the faster. `OMP_NUM_THREADS=1` measures one thread, which other work on the
machine disturbs less. A stage whose data are not at hand, or that fails, says so in the table and stops no other.
Opponents that are not installed are left out: `pip install openvino nncf sentence-transformers fastapi`.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
QUIET = {"PYTHONWARNINGS": "ignore", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
"""Keeps opponents' warnings, which concern none of the figures, out of the progress."""
RATIO = r"(?P<ratio>\d+\.\d+)"


@dataclass(frozen=True)
class Stage:
    """A measurement: its job in words, its script with settings, and the lines of its output that have a ratio."""

    job: str
    command: str
    line: str
    needs: str = ""
    share: bool = False
    """The ratio printed is osbert's part of the other's time."""

    def rows(self, output: str) -> Iterator[tuple[str, str, float]]:
        """Yield job, opponent and how many times as fast osbert is."""
        title = ""
        for line in output.splitlines():
            if re.fullmatch(r"\S.*:", line):
                title = f", {line[:-1]}"
            if match := re.search(self.line, line):
                ratio = float(match["ratio"])
                groups = match.groupdict()
                job = groups.get("job") or f"{self.job}{title}"
                yield job, groups.get("side") or "tokenizers, its calls alone", 1 / ratio if self.share else ratio


STAGES = {
    "encoding": Stage(
        "vectors of sentences by MiniLM",
        "encoding_peers.py --data {data} --models minilm --sentences 480 --rounds 3",
        rf"^(?P<job>osbert \w+) : (?P<side>\S.*?)  {RATIO} times",
        needs="glue",
    ),
    "search": Stage(
        "vectors",
        "vector_search.py --rows 5000,200000 --duplicates 5000 --rounds 3",
        rf"^  (?P<side>(?!osbert)\S.*?)\s+[\d.]+ s .* ratio\s+{RATIO}",
    ),
    "tokenizer": Stage(
        "film reviews to pieces",
        "tokenizer_speed.py --text {data}/text/reviews.jsonl.xz --tokenizer "
        "{data}/bert/vocab/bert-base-uncased-vocab.txt --megabytes 12 --rounds 3",
        rf"^(?P<job>osbert.*?)\s+[\d.]+ \(.*\)\s+{RATIO} times",
        needs="text/reviews.jsonl.xz",
    ),
    "corpus": Stage(
        "corpus build of film reviews",
        "corpus_speed.py --file {data}/text/reviews.jsonl.xz --vocabulary "
        "{data}/bert/vocab/bert-base-uncased-vocab.txt --megabytes 12 --rounds 3",
        rf"^median: .* ratio {RATIO}",
        needs="text/reviews.jsonl.xz",
    ),
    "pretraining": Stage(
        "pretraining, 4 layers of 256, 128 tokens",
        "pretraining_speed.py --sizes L4H256 --lengths 128 --rounds 3 --seconds 4",
        rf"^(?P<side>\S.*? \(best\))\s+[\d,]+\s+{RATIO}",
    ),
    "finetuning": Stage(
        "fine-tuning MiniLM on MRPC, an epoch",
        "finetune.py --data {data} --tasks mrpc --epochs 1 --seeds 0 --sides osbert,best",
        rf"^\| mrpc \| (?P<side>best) .*\| {RATIO} \|$",
        needs="glue/MRPC",
        share=True,
    ),
    "serving": Stage(
        "requests a second, 8 clients",
        "serving.py --clients 8 --seconds 10 --warmup 2",
        rf"^{RATIO} times the requests/s of (?P<side>.*)",
    ),
}
OPPONENTS = {"best": "transformers' best", "best (best)": "transformers' best", "pipeline": "transformers' pipeline"}


def measure(stage: Stage, data: Path) -> tuple[list[tuple[str, str, float]], str]:
    """Run a stage; return its rows, or why there are none."""
    if stage.needs and not (data / stage.needs).exists():
        return [], f"needs {stage.needs} in the folder of --data"
    words = stage.command.format(data=data).split()
    run = subprocess.run(
        [sys.executable, FOLDER / words[0], *words[1:]],
        env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE", **QUIET},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    rows = list(stage.rows(run.stdout))
    return rows, "" if rows else f"{words[0]} ended with exit status {run.returncode} and no ratio"


def table(results: dict[str, tuple[list[tuple[str, str, float]], str]]) -> str:
    """Return all rows as a Markdown table; what osbert loses is marked."""
    lines = ["| job | beside | osbert is so many times as fast |", "|---|---|---|"]
    for name, (rows, reason) in results.items():
        lines += [
            f"| {job} | {OPPONENTS.get(side, side)} | {ratio:.2f}{' (slower)' if ratio < 1 else ''} |"
            for job, side, ratio in rows
        ]
        if reason:
            lines.append(f"| {STAGES[name].job} | | not measured: {reason} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("OSBERT_DATA", FOLDER.parents[1] / "shared/data"))
    )
    parser.add_argument("--out", type=Path, default=FOLDER.parent / "build" / "bench.md")
    parser.add_argument("--stages", default=",".join(STAGES), help="several with commas between")
    options = parser.parse_args()
    names = options.stages.split(",")
    if unknown := [name for name in names if name not in STAGES]:
        parser.error(f"no stage {', '.join(unknown)}; there are {', '.join(STAGES)}")
    results = {}
    for number, name in enumerate(names, 1):
        print(f"{name} ({number} of {len(names)})", file=sys.stderr, flush=True)
        started = time.perf_counter()
        results[name] = measure(STAGES[name], options.data)
        print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    text = f"{platform.machine()}, {os.cpu_count()} cores, {threads} threads, Python {platform.python_version()}\n\n"
    text += table(results)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
