"""wandb: a run of Weights & Biases; WANDB_PROJECT, WANDB_MODE and the like say where."""

from __future__ import annotations

import os
from collections.abc import Mapping

from osbert.training.trackers.contract import TrackedRun, Tracker

PROJECT = "osbert"
"""The project where the environment names none."""


class WandbRun(Tracker):
    """Logs each line as a row of the run's history, with the settings as its config."""

    library = "wandb"

    def __init__(self, run: TrackedRun) -> None:
        """Open the run of that id, or begin one."""
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
        """Add a row. Its step is a column: wandb's own would drop a second row of the same step."""
        self.run.log({"step": step, **figures})

    def close(self) -> None:
        """Wait until all is sent, or written where it is offline."""
        self.run.finish()
