"""mlflow: a run of MLflow, in the place that MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME name."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping

from osbert.training.trackers.contract import TrackedRun, Tracker

EXPERIMENT = "osbert"
"""The experiment if the environment names none."""
MOST = 100
"""Most parameters that MLflow accepts in one call."""
REFUSED = re.compile(r"[^/\w.\- :]")
"""Characters that MLflow rejects in the name of a metric; labels of classes may have them."""


class MlflowRun(Tracker):
    """Logs figures, and once the settings as parameters."""

    library = "mlflow"

    def __init__(self, run: TrackedRun) -> None:
        """Reopen the run with the id, or create one in the experiment."""
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        super().__init__(run)
        self.client, self.metric = MlflowClient(), Metric
        if self.id:
            self.client.update_run(self.id, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
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
