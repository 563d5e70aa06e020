"""The trackers of --track: MLflow, TensorBoard, and Weights & Biases. Their libraries are imported at the first use."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping

from osbert.training.tracking import TrackedRun, Tracker

PROJECT = "osbert"
"""The project, or experiment, if the environment names none."""
MOST = 100
"""Most parameters that MLflow accepts in one call."""
REFUSED = re.compile(r"[^/\w.\- :]")
"""Characters that MLflow rejects in the name of a metric; labels of classes may have them."""


class MlflowRun(Tracker):
    """A run of MLflow, at MLFLOW_TRACKING_URI and in MLFLOW_EXPERIMENT_NAME; its settings are parameters."""

    component, library = "mlflow", "mlflow"

    def __init__(self, run: TrackedRun) -> None:
        """Reopen the run with the id, or create one in the experiment."""
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        super().__init__(run)
        self.client, self.metric = MlflowClient(), Metric
        if self.id:
            self.client.update_run(self.id, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        mlflow_experiment = self.client.get_experiment_by_name(name)
        experiment = mlflow_experiment.experiment_id if mlflow_experiment else self.client.create_experiment(name)
        self.id = self.client.create_run(experiment, run_name=run.name).info.run_id
        parameters = [Param(key, str(value)) for key, value in run.settings.items()]
        for first in range(0, len(parameters), MOST):
            self.client.log_batch(self.id, params=parameters[first : first + MOST])

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Log the numbers in one call."""
        now = int(time.time() * 1000)
        named = {REFUSED.sub("_", name): value for name, value in figures.items()}
        self.client.log_batch(self.id, metrics=[self.metric(name, value, now, step) for name, value in named.items()])

    def close(self) -> None:
        """Mark the run as finished."""
        self.client.set_terminated(self.id)


class TensorBoard(Tracker):
    """Event files in RUN/tensorboard, for `tensorboard --logdir RUN`; a resumed run adds one, shown as the same run."""

    component, library = "tensorboard", "tensorboardX"

    def __init__(self, run: TrackedRun) -> None:
        """Create an event file."""
        from tensorboardX import SummaryWriter

        super().__init__(run)
        folder = run.folder / "tensorboard"
        before = sum(1 for _ in folder.glob("*")) if folder.is_dir() else 0
        # Else two files of one second would have one name.
        self.writer = SummaryWriter(logdir=str(folder), filename_suffix=f".{before}")

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Write a scalar for each number."""
        for name, value in figures.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self.writer.close()


class WandbRun(Tracker):
    """A run of Weights & Biases, which WANDB_PROJECT, WANDB_MODE and the like configure; each line is a row."""

    component, library = "wandb", "wandb"

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
