"""Advice for a collapsed run, whose model predicts the same for every row, from its steps and learning rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from osbert.runs.finetune.defaults import STEPS
from osbert.terminal import format_count

HIGH = {"full": 5e-5, "none": 1e-2, "adapters": 1e-3, "lora": 1e-3}
"""Learning rate, by kind of tuning, from which on the first advice is a lower one."""


def advice(settings: Mapping[str, Any], *, steps: int, flags: Sequence[str] = ()) -> str:
    """Return advice after a collapsed run of `steps` steps; `settings` are those of its recipe.

    `flags`: those of the number of steps that the user gave, which the defaults for few rows would do better without.

    >>> paper = {"training": {"epochs": 3, "batch": 32, "tuning": "full"}, "optimizer": {"learning_rate": 3e-5}}
    >>> advice(paper, steps=18)
    '18 steps (3 epochs, batch 32) are few: give more --epochs or a smaller --batch, for 200 steps or more.'
    >>> advice(paper, steps=18, flags=["--batch"])
    '18 steps (3 epochs, batch 32) are few: leave --batch out, and the rows decide.'
    """
    training, rate = settings["training"], settings["optimizer"]["learning_rate"]
    if training.get("few_shot", "none") != "none":
        return "The encoder's vectors do not part the labels: give more rows of each, or --few-shot none."
    steps_text = f"{steps:,} steps ({format_count(training['epochs'], 'epoch')}, batch {training['batch']})"
    if steps < STEPS and flags:
        return f"{steps_text} are few: leave {' and '.join(flags)} out, and the rows decide."
    if steps < STEPS:
        return f"{steps_text} are few: give more --epochs or a smaller --batch, for {STEPS} steps or more."
    seeds = "another --seed, or several (--seeds 5)"
    if rate >= HIGH[training["tuning"]]:
        return f"It took {steps_text} at a rate of {rate:g}: try --learning-rate {rate / 2:g} or {seeds}."
    return f"It took {steps_text} at a rate of {rate:g}: try {seeds}, or more --epochs."
