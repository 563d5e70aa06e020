"""A run on a thousand nodes that fail as often as published: which checkpoint interval is best, and what it leaves.

    python benchmarks/failures.py [--nodes 1000] [--gpus 8] [--days 30] [--runs 20] [--restart 300]
        [--pause 60 --pause 5 ...] [--seed 0]

Failures are independent, with exponential times between them. Their rate is that of Llama 3's pretraining: 419
unexpected interruptions in 54 days on 16,384 GPUs (Llama Team 2024, "The Llama 3 Herd of Models", section 3.3.4), so
one in 50,700 hours of a GPU. A failure of any node ends all processes; they start again, which takes `--restart`
seconds, and repeat the steps since the last checkpoint that was complete. `--pause`: seconds for which training stands
still for a checkpoint. `--write`: seconds until a checkpoint that is written in the background is complete, in which
a failure falls back to the one before.

Goodput is the time of steps that were kept, divided by all time. The simulated best interval is the best of a grid
around Young's (1974, "A first order approximation to the optimum checkpoint interval"), sqrt(2 x pause x mean time
between failures); beside it stands Daly's of higher order (2006, "A higher order estimate of the optimum checkpoint
interval for restart dumps"). Goodput is also computed: of exponential failures the mean time for an interval is
(between + restart) x (exp((interval + pause) / between) - 1), so the two should agree.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from dataclasses import dataclass, replace

INTERRUPTIONS, DAYS, GPUS = 419, 54, 16_384
"""Llama 3's pretraining, as published."""
GRID = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4, 1.6, 2.0)
"""The intervals that are tried, as multiples of Young's."""
HOUR, DAY = 3600.0, 86_400.0


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What a run meets, in seconds.

    `between`: mean time between failures. `pause`: for which training stands still for a checkpoint. `write`: after
    the pause, until it is complete. `restart`: from a failure to the first step.
    """

    between: float
    pause: float
    restart: float
    write: float = 0.0


def mean_time_between(gpus: int) -> float:
    """Return the seconds between two failures of any of so many GPUs, at the published rate.

    >>> round(mean_time_between(16_384) / 3600, 2)
    3.09
    """
    return DAYS * DAY / INTERRUPTIONS * GPUS / gpus


def young(cluster: Cluster) -> float:
    """Return Young's interval of work between two checkpoints, sqrt(2 x pause x mean time between failures).

    >>> round(young(Cluster(between=20_000, pause=10, restart=0)))
    632
    """
    return math.sqrt(2 * cluster.pause * cluster.between)


def daly(cluster: Cluster) -> float:
    """Return Daly's interval of higher order; the mean time between failures where a checkpoint takes over twice it.

    >>> round(daly(Cluster(between=20_000, pause=10, restart=0)))
    626
    """
    part = cluster.pause / (2 * cluster.between)
    if part >= 1:
        return cluster.between
    return young(cluster) * (1 + math.sqrt(part) / 3 + part / 9) - cluster.pause


def goodput(cluster: Cluster, interval: float, *, seconds: float, rng: random.Random) -> float:
    """Return the fraction of `seconds` that went into steps that were kept, in one simulated run.

    `interval`: seconds of steps between two checkpoints. Without failures it is interval / (interval + pause):

    >>> calm = Cluster(between=1e30, pause=10, restart=0)
    >>> round(goodput(calm, 90, seconds=1e6, rng=random.Random(0)), 3)
    0.9
    """
    now = kept = 0.0
    while now < seconds:
        failure = now + rng.expovariate(1 / cluster.between)
        # Since the last start, interval + pause are repeated. A checkpoint counts once it is complete.
        period = interval + cluster.pause
        complete = max(0, math.floor((min(failure, seconds) - now - cluster.write) / period))
        kept += complete * interval
        now = failure + cluster.restart
    return kept / seconds


def computed_goodput(cluster: Cluster, interval: float) -> float:
    """Return the mean of `goodput` in a long run, computed; of checkpoints that are complete after the pause.

    >>> cluster = Cluster(between=20_000, pause=10, restart=300)
    >>> round(computed_goodput(cluster, 600), 3)
    0.954
    """
    spent = (cluster.between + cluster.restart) * math.expm1((interval + cluster.pause) / cluster.between)
    return interval / spent


def mean_goodput(cluster: Cluster, interval: float, *, days: float, runs: int, seed: int) -> float:
    """Return the mean of `goodput` over some runs, whose failures depend on the seed alone."""
    found = [goodput(cluster, interval, seconds=days * DAY, rng=random.Random(f"{seed} {run}")) for run in range(runs)]
    return statistics.fmean(found)


def best_interval(cluster: Cluster, *, days: float, runs: int, seed: int) -> tuple[float, float]:
    """Return the interval of the grid with the highest simulated goodput, and that goodput."""
    intervals = [factor * young(cluster) for factor in GRID]
    return max(
        ((one, mean_goodput(cluster, one, days=days, runs=runs, seed=seed)) for one in intervals),
        key=lambda found: found[1],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--gpus", type=int, default=8, help="GPUs a node")
    parser.add_argument("--days", type=float, default=30)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--restart", type=float, default=300)
    parser.add_argument("--write", type=float, default=0)
    parser.add_argument("--pause", type=float, action="append")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    between = mean_time_between(chosen.nodes * chosen.gpus)
    gpus = f"{chosen.nodes:,} nodes of {chosen.gpus} GPUs"
    print(f"{gpus}: a failure every {between / HOUR:.2f} hours; {chosen.restart:g} s to start again")
    print(f"{chosen.runs} runs of {chosen.days:g} days, failures by seed {chosen.seed}\n")
    columns = (
        "pause, s",
        "Young, min",
        "Daly, min",
        "best, min",
        "at Young's",
        "computed",
        "at best",
        "at 4 x",
    )
    print(f"| {' | '.join(columns)} |")
    print("|---|---|---|---|---|---|---|---|")
    base = Cluster(between=between, pause=1, restart=chosen.restart, write=chosen.write)
    how = {"days": chosen.days, "runs": chosen.runs, "seed": chosen.seed}
    for pause in chosen.pause or [60.0, 20.0, 5.0, 1.0]:
        cluster = replace(base, pause=pause)
        best, reached = best_interval(cluster, **how)
        at_young, far = (mean_goodput(cluster, factor * young(cluster), **how) for factor in (1, 4))
        minutes = " | ".join(f"{one / 60:.1f}" for one in (young(cluster), daly(cluster), best))
        goodputs = " | ".join(
            f"{100 * one:.1f}%" for one in (at_young, computed_goodput(cluster, young(cluster)), reached, far)
        )
        print(f"| {pause:g} | {minutes} | {goodputs} |")


if __name__ == "__main__":
    main()
