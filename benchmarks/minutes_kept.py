"""Whether `osbert pretrain --minutes` ends in time on a machine that becomes slower by half midway.

    python benchmarks/minutes_kept.py --corpus CORPUS [--minutes 2] [--recipe cpu] [--slices 0.05]

From half of the time on the process is stopped and continued by signals, --slices seconds each, so that it has half of
the processor. Printed are the seconds by the clock from the command's start to its end, and the corrections of the
number of steps in run.json.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path


def throttled(command: list[str], *, after: float, slices: float) -> float:
    """Run a command, at half speed from `after` seconds on; return the seconds to its end."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    turns = cycle([signal.SIGSTOP, signal.SIGCONT])
    try:
        process.wait(timeout=after)
    except subprocess.TimeoutExpired:
        while process.poll() is None:
            process.send_signal(next(turns))
            time.sleep(slices)
    if process.returncode:
        raise SystemExit(f"the run ended with status {process.returncode}")
    return time.perf_counter() - started


def main() -> None:
    """Print one line for the time and one for the corrections."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--recipe", default="cpu")
    parser.add_argument("--slices", type=float, default=0.05, help="seconds between two signals")
    chosen = parser.parse_args()
    asked = 60 * chosen.minutes
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "osbert", "pretrain", chosen.recipe, "--corpus", str(chosen.corpus)]
        command += ["--minutes", str(chosen.minutes), "--out", str(out), "--quiet"]
        took = throttled(command, after=asked / 2, slices=chosen.slices)
        facts = json.loads((out / "run.json").read_text())
    print(f"{took:.1f} s of {asked:.0f} s: {took / asked - 1:+.1%}")
    print(f"corrections (step, steps): {facts.get('corrections', [])}")


if __name__ == "__main__":
    main()
