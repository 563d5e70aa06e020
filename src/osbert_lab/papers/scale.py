"""How much of a table is run: its options on the command line."""

from __future__ import annotations

from dataclasses import dataclass

from osbert.errors import UserError

RECIPE = "cpu"
"""The recipe of all rows if --recipe is not given."""


@dataclass(frozen=True, kw_only=True)
class TableScale:
    """How much of a table is run."""

    shrink: int = 1
    """For table6: the divisor of the encoders' widths."""
    seeds: int = 3
    """Runs per row, with seeds 0, 1, 2, ..."""
    rows: int = 4000
    """Most training rows of a data set, sampled at random; 0 for all. Your own data (classify=FOLDER) keeps all
    rows."""
    dev_rows: int = 0
    """Most development rows, sampled likewise; 0 for all. Fewer rows give wider intervals."""
    jobs: int = 1
    """Parallel runs; they divide the processor's cores among them."""
    recipes: str = ""
    """For families, writing and their like: the rows to run, comma-separated. A row's name is that row, a recipe's name
    all of its rows; any other recipe, or a file, is a row of its own. By default all rows."""
    tasks: str = ""
    """The data sets to fine-tune on, comma-separated: mrpc; squad=FOLDER if it lies elsewhere; classify=FOLDER, or any
    task of osbert finetune, for your own. Each must exist."""
    points: int = 5
    """For figure5: the number of evenly spaced steps of a pretraining, the last one included, whose models are
    fine-tuned."""

    def check(self) -> None:
        """Raise UserError if a number is too small."""
        for name, least in (("seeds", 1), ("rows", 0), ("dev_rows", 0), ("jobs", 1), ("shrink", 1), ("points", 1)):
            if (value := getattr(self, name)) < least:
                raise UserError(
                    f"--{name.replace('_', '-')} must be {least} or more, not {value}.", code="invalid-value"
                )
