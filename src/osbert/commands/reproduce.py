"""osbert reproduce: runs what a table of the BERT paper needs, small enough for this machine, and prints both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import make_dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from osbert.commands.opening_options import ModelFolder, OpeningOptions
from osbert.interop.opening import CAREFUL
from osbert.lock import claim
from osbert.options import among, takes_settings
from osbert.runs.reproduce.scale import TableScale
from osbert.training.interruption import sigterm_as_exit

RECIPE = "cpu"
"""The recipe of the rows where none is named."""


def schemas_shown(words: Sequence[str]) -> Sequence[type]:
    """Return the settings of the table and the recipe that the words after the verb name; of its tasks the first's."""
    from osbert.evaluation.paper import TABLES
    from osbert.runs.reproduce.settings import table_schemas
    from osbert.runs.reproduce.tables import read_table

    table = read_table(words[0] if words[0] in TABLES else "table5")
    named = among(words, make_dataclass("Named", [("recipe", str)]))
    return table_schemas(replace(table, columns=table.columns[:1]), named.get("recipe", RECIPE), words)


@takes_settings(schemas_shown)
def reproduce(
    table: Literal["table1", "table2", "table3", "table4", "table5", "table6", "table7", "table8"],
    /,
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True)],
    data: Path,
    out: Path,
    corpus: Path | None = None,
    model: ModelFolder | None = None,
    recipe: str = RECIPE,
    scale: Annotated[TableScale | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> None:
    """Run a table of the BERT paper at a size of your choosing, and print your figures beside the published ones.

    Every row's encoder is pretrained once a seed and fine-tuned on each data set; scores are those of the best epoch on
    the development rows. Columns without data show a dash. A command that was stopped goes on when it is given again.

    Parameters
    ----------
    table
        table1: GLUE. table2: SQuAD 1.1, also as an ensemble of all seeds. table3: SQuAD 2.0. table4: SWAG. table5: MLM
        with and without NSP, left to right, and a BiLSTM on that. table6: six sizes of the encoder. table7: CoNLL-2003,
        fine-tuned and on features. table8: six mixes of masking.
    settings
        Settings for every row: --pretraining.steps 2000 (or --steps 2000), --finetuning.epochs 3. By default a model
        that is given is fine-tuned as in the paper, one that is pretrained here for three epochs at 5e-4.
    data
        A folder with the official files: of GLUE in MNLI, QNLI, MRPC, SST-2, ..., of NER in conll2003 (eng.train,
        eng.testa), of SQuAD in squad (train-v1.1.json, dev-v1.1.json, or of 2.0), of SWAG in swag (train.csv, val.csv).
    out
        The folder for all runs, results.json and table.txt.
    corpus
        A folder that `osbert corpus build` made, to pretrain on where no model is given.
    model
        For table1 to 4 and 7: the model to fine-tune, be it fine-tuned before, by its folder or its name.
    recipe
        The recipe that all rows share.
    """
    from osbert.runs.reproduce.encoders import choose
    from osbert.runs.reproduce.plan import TablePlan
    from osbert.runs.reproduce.report import write_table_report
    from osbert.runs.reproduce.settings import split_settings, table_schemas
    from osbert.runs.reproduce.tables import read_table

    (scale := scale or TableScale()).check()
    wanted = read_table(table).shrunk(scale.shrink)
    pretraining, finetuning = split_settings(settings, table_schemas(wanted, recipe, settings, opening))
    plan = TablePlan(
        table=wanted,
        columns=wanted.present(data),
        encoders=choose(wanted, recipe, corpus=corpus, model=model, settings=pretraining, opening=opening),
        data=data,
        out=out,
        scale=scale,
        finetuning=finetuning,
        opening=opening,
    )
    with claim(out), sigterm_as_exit():
        plan.run(watch=print_event)
        print(write_table_report(plan), end="")


def print_event(event: object) -> None:
    """Print the ends of runs, and notices."""
    from osbert.runs.study.runner import TrialBegin, TrialRestart

    if not isinstance(event, TrialBegin | TrialRestart):
        print(event, flush=True)
