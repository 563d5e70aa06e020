"""The settings that a comparison tries: the paper's grids, or proposals by optuna based on the results so far."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from osbert.errors import UserError
from osbert.files import read_own, write_sealed
from osbert.runs.finetune.plan import describe_settings
from osbert.runs.finetune.settings import GRIDS, Comparison

RATES = {"full": (1e-5, 1e-4), "none": (1e-4, 1e-1), "adapters": (1e-4, 1e-2), "lora": (1e-4, 1e-2)}
"""Range of optuna's learning rates, by kind of tuning."""
BATCHES, EPOCHS = (8, 16, 32), (2, 4)
"""Batches, and the range of epochs, of optuna's search."""
PROPOSALS = "proposals.json"
"""File in the folder of the trials with optuna's proposals so far."""


@dataclass(frozen=True, kw_only=True)
class TrialSettings:
    """Settings that a comparison tries, by their dotted names; none where only the seeds differ."""

    name: str
    settings: Mapping[str, float] = field(default_factory=dict)

    def describe(self) -> str:
        """Return the settings in words, "" for none."""
        return describe_settings(self.settings)


@dataclass(frozen=True, kw_only=True)
class SettingsScore:
    """Settings, and the mean of the criterion over their seeds: NaN where no run of them came to an end."""

    settings: TrialSettings
    score: float


class Candidates(Protocol):
    """What a comparison tries."""

    def after(self, tried: Sequence[SettingsScore]) -> Iterator[TrialSettings]:
        """Yield one after the other; each is in `tried` before the next one is chosen."""
        ...


@dataclass(frozen=True)
class Grid:
    """Every value of each setting with every value of the others."""

    values: Mapping[str, tuple[float, ...]]

    def after(self, tried: Sequence[SettingsScore]) -> Iterator[TrialSettings]:
        """Yield every point of the grid."""
        for point in itertools.product(*self.values.values()):
            yield _name_settings(dict(zip(self.values, point)))


class Optuna:
    """Proposals of optuna's TPE sampler, each a function of the seed, its number and the results before it.

    Proposals are written down before they are tried, so that a search that was stopped goes on with the same ones.
    """

    def __init__(self, *, trials: int, rates: tuple[float, float], seed: int, folder: Path) -> None:
        """Propose `trials` settings. Raises UserError when optuna is not installed."""
        try:
            import optuna
        except ImportError as error:
            raise UserError(
                '--search optuna needs optuna: pip install "osbert[search]"', code="missing-library"
            ) from error
        self.optuna = optuna
        self.trials = trials
        self.seed = seed
        self.path = folder / PROPOSALS
        spaces = optuna.distributions
        self.space: dict[str, Any] = {
            "training.batch": spaces.CategoricalDistribution(BATCHES),
            "optimizer.learning_rate": spaces.FloatDistribution(*rates, log=True),
            "training.epochs": spaces.IntDistribution(*EPOCHS),
        }

    def after(self, tried: Sequence[SettingsScore]) -> Iterator[TrialSettings]:
        """Yield what was proposed before a stop, then new proposals."""
        written = self._read_proposals()
        for number in range(self.trials):
            if number == len(written):
                written.append(self.propose(number, tried))
                self.path.parent.mkdir(parents=True, exist_ok=True)
                write_sealed(self.path, {"proposals": written})
            yield _name_settings(written[number], f"{number:03}")

    def _read_proposals(self) -> list[dict[str, float]]:
        again = "Remove it and give the same command again: the same settings are proposed."
        return list(read_own(self.path, again)["proposals"]) if self.path.exists() else []

    def propose(self, number: int, tried: Sequence[SettingsScore]) -> dict[str, float]:
        """Return the settings that optuna proposes as the `number`th, counted from 0."""
        optuna = self.optuna
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=self.seed + number, n_startup_trials=min(10, self.trials // 2 + 1))
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for candidate in tried:
            if math.isfinite(candidate.score):
                study.add_trial(
                    optuna.trial.create_trial(
                        params=dict(candidate.settings.settings), distributions=self.space, value=candidate.score
                    )
                )
        settings = dict(study.ask(self.space).params)
        settings["optimizer.learning_rate"] = float(f"{settings['optimizer.learning_rate']:.3g}")
        return settings


def candidates(comparison: Comparison, *, tuning: str, seed: int, folder: Path) -> Candidates:
    """Return what a comparison tries; `tuning` and `seed` are those of its runs, `folder` that of the trials."""
    if comparison.search == "optuna":
        return Optuna(trials=comparison.trials, rates=RATES[tuning], seed=seed, folder=folder)
    return Grid(GRIDS.get(comparison.search, {}))


def _name_settings(settings: Mapping[str, float], *number: str) -> TrialSettings:
    parts = [f"{key.rpartition('.')[2]}-{value:g}" for key, value in settings.items()]
    return TrialSettings(name="-".join([*number, *parts]), settings=dict(settings))
