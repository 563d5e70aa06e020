"""How much of a table is run: its options on the command line."""

from __future__ import annotations

from dataclasses import dataclass

from osbert.errors import UserError

RECIPE = "cpu"
"""The recipe of the rows where none is named."""


@dataclass(frozen=True, kw_only=True)
class TableScale:
    """How much of a table is run."""

    shrink: int = 1
    """For table6: what the widths of the encoders are divided by."""
    seeds: int = 3
    """Runs of each row, with seeds 0, 1, 2, ..."""
    rows: int = 4000
    """Most training rows of a data set, sampled at random; 0 for all. Data of your own (classify=FOLDER) keep all."""
    dev_rows: int = 0
    """Most development rows, sampled alike; 0 for all. Figures on fewer rows have wide intervals."""
    jobs: int = 1
    """Runs at a time; the processor's cores are shared out among them."""
    recipes: str = ""
    """For families: the recipes to compare, names or files with commas between; all of its own if none is named."""
    tasks: str = ""
    """The data sets to fine-tune on, with commas between: mrpc; squad=FOLDER where it lies elsewhere; classify=FOLDER,
    or any task of osbert finetune, for your own. Each must be there."""
    points: int = 5
    """For figure5: the steps of a pretraining, evenly apart up to the last, whose models are fine-tuned."""

    def check(self) -> None:
        """Raise UserError at a number that is too small."""
        for name, least in (("seeds", 1), ("rows", 0), ("dev_rows", 0), ("jobs", 1), ("shrink", 1), ("points", 1)):
            if (value := getattr(self, name)) < least:
                raise UserError(
                    f"--{name.replace('_', '-')} must be {least} or more, not {value}.", code="invalid-value"
                )
