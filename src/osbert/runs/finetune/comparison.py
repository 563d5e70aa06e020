"""Several runs instead of one: the settings of a comparison; studies and suites, which other packages add."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from osbert import recipe
from osbert.errors import Problems, UserError
from osbert.extensions import advise_lab, extensions

GRIDS: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "paper": {
        "training.batch": (16, 32),
        "optimizer.learning_rate": (5e-5, 3e-5, 2e-5),
        "training.epochs": (2, 3, 4),
    },
    "glue": {
        "training.batch": (32,),
        "optimizer.learning_rate": (5e-5, 4e-5, 3e-5, 2e-5),
        "training.epochs": (3,),
    },
}
"""The grids of the paper (all combinations): appendix A.3, and section 4.1 for GLUE."""

Search = Literal["none", "paper", "glue", "optuna"]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Several runs instead of one. The best one on the development rows becomes the model."""

    seeds: int = 0
    """Number of seeds, from --seed on; median, mean and standard deviation are reported. 0 for one run."""
    search: Search = "none"
    """Settings to try, with every seed: paper (batch 16, 32; learning rate 5e-5, 3e-5, 2e-5; epochs 2, 3, 4), glue
    (batch 32, 3 epochs, learning rate 5e-5, 4e-5, 3e-5, 2e-5) or optuna (as many as --trials, each proposed from the
    results before it)."""
    trials: int = 0
    """How many settings optuna tries."""
    folds: int = 0
    """Cross-validation with this many folds, each predicted by a run on the others; mean, deviation and interval of the
    scores are reported. The model is that of one more run, as without folds."""
    group: str = ""
    """Column for grouped folds, such as patient or author: rows with the same value go into one fold."""

    def __post_init__(self) -> None:
        """Raise ValueError for numbers out of range and for settings that exclude each other."""
        if self.folds and (self.folds < 2 or self.seeds or self.search != "none"):
            raise ValueError("folds must be 2 or more, and go with neither seeds nor search")
        if self.group and not self.folds:
            raise ValueError(f"group = {self.group} does nothing without folds")
        for name in ("seeds", "trials"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if self.search == "optuna" and not self.trials:
            raise ValueError("optuna needs a number of settings: --trials 20")
        if self.search != "optuna" and self.trials:
            raise ValueError(f"trials = {self.trials} does nothing without --search optuna (several runs: --seeds N)")

    @property
    def wanted(self) -> bool:
        """Return whether there is more than one run."""
        return self.search != "none" or self.seeds > 1 or self.folds > 0

    def table(self) -> dict[str, Any]:
        """Return the settings as they are kept with a run; those of folds only where there are some."""
        table = recipe.as_table(self)
        return {name: value for name, value in table.items() if value or name not in ("folds", "group")}

    @property
    def varied(self) -> tuple[str, ...]:
        """Return the dotted names of the settings that the search decides."""
        return () if self.search == "none" else tuple(GRIDS["paper"])

    def check(self, given: Iterable[str]) -> None:
        """Raise UserError when settings were `given` that the search decides."""
        problems = Problems(heading=f"--search {self.search} tries settings that are given as well")
        for name in sorted({*given} & {*self.varied}):
            problems.add(
                f"--{name} and --search cannot be combined. Remove one of the two.", code="options-exclude-each-other"
            )
        problems.stop_if_any()


def describe_settings(settings: Mapping[str, float | str]) -> str:
    """Return settings in words, by the last part of their names, "" for none.

    >>> describe_settings({"training.batch": 16, "optimizer.learning_rate": 5e-5})
    'batch 16, learning rate 5e-05'
    """
    leaves = {name.rpartition(".")[2].replace("_", " "): value for name, value in settings.items()}
    return ", ".join(f"{name} {value if isinstance(value, str) else f'{value:g}'}" for name, value in leaves.items())


def find_study(name: str) -> Callable[..., None]:
    """Return what runs a fine-tuning several times: "comparison", "folds" or "learning_curve".

    Other packages add studies by entry points in the group `osbert.runs.finetune.studies`: functions of a plan, the
    records of each task, the run folder, `watch` and `wish`. Raises UserError if none is installed.
    """
    extension = extensions("osbert.runs.finetune.studies").get(name)
    if extension is None:
        raise UserError(
            f"--seeds, --search, --folds and --learning-curve need a package that adds studies.{advise_lab()}",
            code="unknown-component",
        )
    study: Callable[..., None] = extension.load()
    return study


class TaskSuite(Protocol):
    """A suite of data sets that `osbert finetune NAME` fine-tunes one by one, such as GLUE.

    Other packages add suites by entry points in the group `osbert.runs.finetune.suites`.
    """

    tasks: Sequence[str]
    """The names of its tasks, whose settings the command takes."""

    def finetune(self, **call: Any) -> Mapping[str, float]:
        """Fine-tune a run for each data set; return the scores. The keywords are those of `finetune`."""


def find_suite(tasks: Sequence[str]) -> TaskSuite | None:
    """Return the suite of data sets that a single word names, such as glue; None if the words name tasks."""
    extension = extensions("osbert.runs.finetune.suites").get(tasks[0]) if len(tasks) == 1 else None
    return extension.load() if extension else None
