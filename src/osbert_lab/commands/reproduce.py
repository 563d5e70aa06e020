"""osbert reproduce: runs the experiments behind a table or figure of the BERT paper, at a size for this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import make_dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from osbert.console.arguments import ModelFolder, OpeningOptions
from osbert.console.output import Result, watching
from osbert.files import read_json
from osbert.interop.opening import CAREFUL
from osbert.lock import claim
from osbert.options import among, takes_settings
from osbert.training.interruption import sigterm_as_exit
from osbert_lab.papers.scale import RECIPE, TableScale

Reproduced = Literal[
    "table1", "table2", "table3", "table4", "table5", "table6", "table7", "table8", "figure5", "families", "writing",
    "generations", "corruption", "masking", "roberta", "attention", "probing",
]  # fmt: skip


def schemas_shown(words: Sequence[str]) -> Sequence[type]:
    """Return the settings of the table and recipe in the words after the verb; of its tasks, the first one's."""
    from osbert_lab.papers.settings import table_schemas
    from osbert_lab.papers.tables import read_table, table_names

    table = read_table(words[0] if words[0] in table_names() else "table5")
    named = among(words, make_dataclass("Named", [("recipe", str)]))
    return table_schemas(replace(table, columns=table.columns[:1]), named.get("recipe", RECIPE), words)


@takes_settings(schemas_shown)
def reproduce(
    table: Reproduced,
    /,
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True)],
    data: Path,
    out: Path,
    corpus: Path | None = None,
    model: ModelFolder | None = None,
    recipe: str = RECIPE,
    scale: Annotated[TableScale | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Run a table or figure of the BERT paper, or compare families, at a size of your choosing.

    Your figures are printed beside the published ones.
    Every row's encoder is pretrained once a seed and fine-tuned on each data set; scores are those of the best epoch on
    the development rows. Columns without data show a dash. The same command resumes a stopped one.

    Parameters
    ----------
    table
        table1: GLUE. table2: SQuAD 1.1, also as an ensemble of all seeds. table3: SQuAD 2.0. table4: SWAG. table5: MLM
        with and without NSP, left to right, and a BiLSTM on that. table6: six sizes of the encoder. table7: CoNLL-2003,
        fine-tuned and on features. table8: six mixes of masking. figure5: MNLI by steps of pretraining, masked and
        left-to-right. families: recipes of several families, each pretrained for the same --minutes. writing: the same
        of UniLM, T5, BART and MASS, on texts to write. generations: the same of models from word2vec to ELECTRA, by
        year, as features and fine-tuned, and on similar words and analogies. corruption: MASS's fragments and BART's
        noises, each alone. masking: pieces, whole words, n-grams and phrases masked; phrases are of a second corpus
        beside the common one (corpus-phrases). roberta: RoBERTa's ablation of masks, next sentences and batches.
        attention: where the heads of --model look, beside Clark et al. 2019. probing: in which layers of --model
        probes read what, beside Tenney et al. 2019.
    settings
        Settings for every row: --pretraining.steps 2000 (or --steps 2000), --finetuning.epochs 3. By default a model
        that is given is fine-tuned as in the paper, one that is pretrained here for three epochs at 5e-4.
    data
        A folder with the official files: of GLUE in MNLI, QNLI, MRPC, SST-2, ..., of NER in conll2003 (eng.train,
        eng.testa), of SQuAD in squad (train-v1.1.json, dev-v1.1.json, or of 2.0), of SWAG in swag (train.csv, val.csv);
        tests of words in words (wordsim353.csv, SimLex-999.txt, questions-words.txt); for attention and probing
        whatever `osbert analyse` reads: text, trees (.conllu), chunks, coreference.
    out
        The folder for all runs, results.json and table.txt; except for tables report.html, too.
    corpus
        A folder that `osbert corpus build` made, to pretrain on where no model is given; your own will do.
    model
        The model, by its folder or its name: for table1 to 4 and 7 to fine-tune, be it fine-tuned before; for attention
        and probing to measure.
    recipe
        The recipe that all rows share; of families each has its own (--recipes).
    """
    from osbert_lab.papers.request import TableRequest
    from osbert_lab.papers.run_table import run_and_report

    plan = TableRequest(
        name=table, data=data, out=out, corpus=corpus, model=model, recipe=recipe, scale=scale or TableScale(),
        settings=settings, opening=opening,
    ).plan()  # fmt: skip
    with claim(out), sigterm_as_exit():
        print(run_and_report(plan, watching(print_event)), end="")
    return {"folder": out, "results": read_json(out / "results.json")}


def print_event(event: object) -> None:
    """Print notices, and a line when a run ends."""
    from osbert_lab.study.runner import TrialBegin, TrialRestart

    if not isinstance(event, TrialBegin | TrialRestart):
        print(event, flush=True)
