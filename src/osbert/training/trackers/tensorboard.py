"""tensorboard: event files in RUN/tensorboard, for `tensorboard --logdir RUN`."""

from __future__ import annotations

from collections.abc import Mapping

from osbert.training.trackers.contract import TrackedRun, Tracker


class TensorBoard(Tracker):
    """Writes event files; a resumed run adds one to the same folder, which TensorBoard shows as one run."""

    library = "tensorboardX"

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
