"""wandb: a run of Weights & Biases; WANDB_PROJECT, WANDB_MODE and the like configure it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from osbert.training.trackers.contract import TrackedRun, Tracker

PROJECT = "osbert"
"""The project if the environment names none."""


class WandbRun(Tracker):
    """Logs each line as a row of the run's history, with the settings as its config."""

    library = "wandb"

    def __init__(self, run: TrackedRun) -> None:
        """Resume the run with the id, or create one."""
        import wandb

        super().__init__(run)
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run.name,
            id=self.id or None,
            resume="allow" if self.id else None,
            dir=str(run.folder),
            config=dict(run.settings),
            reinit="create_new",  # a run of the caller's own is not ours to end
            settings=wandb.Settings(console="off", silent=True),
        )
        self.id = self.run.id
        self.run.define_metric("*", step_metric="step")

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Add a row with the step as a column, because wandb's own step would drop a second row of the same step."""
        self.run.log({"step": step, **figures})

    def close(self) -> None:
        """Wait until everything is sent, or written to disk if wandb is offline."""
        self.run.finish()
