"""osbert reproduce: runs what a table of the BERT paper needs, small enough for this machine, and prints both."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from osbert.commands.opening_options import ModelFolder, OpeningOptions
from osbert.errors import UserError
from osbert.interop.opening import CAREFUL
from osbert.lock import claim
from osbert.runs.reproduce.scale import TableScale


def reproduce(
    table: Literal["table1", "table2", "table3", "table4", "table5", "table6", "table7", "table8"],
    /,
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True)],
    data: Path,
    out: Path,
    corpus: Path | None = None,
    model: ModelFolder | None = None,
    recipe: str = "cpu",
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
        Settings for every row: --pretraining.steps 2000 (or --steps 2000), --finetuning.epochs 3. A model of yours is
        fine-tuned as the paper did for this table (table1 and table7: three epochs at 3e-5), one that is pretrained
        here for three epochs at 5e-4.
    data
        A folder with the official files: of GLUE in MNLI, QNLI, MRPC, SST-2, ..., of NER in conll2003 (eng.train,
        eng.testa), of SQuAD in squad (train-v1.1.json, dev-v1.1.json, or of 2.0), of SWAG in swag (train.csv, val.csv).
    out
        The folder for all runs, results.json and table.txt.
    corpus
        A folder that `osbert corpus build` made, to pretrain on.
    model
        For table1 to 4 and 7: the model to fine-tune, be it fine-tuned before, as a folder or a name
        (docs/models-by-name.md); without it one is pretrained.
    recipe
        The recipe that all rows share.
    """
    from osbert.runs.reproduce.encoders import choose
    from osbert.runs.reproduce.plan import TablePlan
    from osbert.runs.reproduce.report import write_table_report
    from osbert.runs.reproduce.tables import read_table
    from osbert.training.interruption import sigterm_as_exit

    (scale := scale or TableScale()).check()
    wanted, (pretraining, finetuning) = read_table(table).shrunk(scale.shrink), split_settings(settings)
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


def split_settings(words: Sequence[str]) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Return the settings of pretraining and of fine-tuning; those without a part's name are of pretraining.

    Raises UserError at words that are no settings, and at --finetuning "...", which was one option once.

    >>> split_settings(["--steps", "100", "--finetuning.epochs=3", "--finetuning.merge"])
    ({'steps': '100'}, {'epochs': '3', 'merge': None})
    """
    pretraining: dict[str, str | None] = {}
    finetuning: dict[str, str | None] = {}
    waiting = list(words)
    while waiting:
        name, equals, value = waiting.pop(0).partition("=")
        if not name.startswith("--"):
            raise UserError(f"'{name}' is not a setting: settings look like --steps 1000.", code="not-a-setting")
        once = name == "--finetuning"
        follows = bool(waiting) and (once or not waiting[0].startswith("--"))
        given = value if equals else waiting.pop(0) if follows else None
        if once:
            new = shlex.join(word.replace("--", "--finetuning.", 1) for word in shlex.split(given or ""))
            raise UserError(
                f"--finetuning takes one setting at a time: {new or '--finetuning.epochs 3'}", code="replaced-option"
            )
        part, _, own = name[2:].replace("-", "_").partition(".")
        if part == "finetuning":
            finetuning[own] = given
        else:
            pretraining[own if part == "pretraining" else name[2:].replace("-", "_")] = given
    return pretraining, finetuning
