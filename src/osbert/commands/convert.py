"""osbert convert: converts a model from a foreign format to a run folder, or the reverse."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from osbert.console.arguments import ModelFolder, OpeningOptions
from osbert.console.output import Result, print_notices, watching
from osbert.errors import UserError
from osbert.interop.foreign_forms import TargetForm
from osbert.interop.opening import CAREFUL
from osbert.runs.contract import Notice


def convert(
    source: ModelFolder,
    target: Path,
    /,
    *,
    to: TargetForm,
    task: str | None = None,
    labels: str = "",
    anyway: Annotated[bool, Parameter(negative=())] = False,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Convert a model between osbert's run folders, Hugging Face's and google-research/bert's (TensorFlow).

    Every tensor is listed with its fate. Then both folders are loaded again, and their outputs must agree on a few
    fixed texts. The target is complete or missing. The exit status is 1 if there is a PROBLEM.

    Parameters
    ----------
    source
        A run folder, a Hugging Face folder, a folder with bert_config.json, vocab.txt and bert_model.ckpt.*, or the
        prefix of one of several checkpoints in such a folder; a name (docs/models-by-name.md); a file of word vectors.
    target
        The folder to write, which is not there yet, or empty.
    to
        osbert: a run folder, which predict, embed, finetune --model and pretrain --from take. huggingface: what
        AutoModel or SentenceTransformer reads, and nothing else. google: what google-research/bert reads. onnx: what
        osbert export writes. word2vec and glove: the file TARGET, .txt, .vec or .bin (binary), of a static model.
    task
        What the last layer of a model is for, where its config does not tell: classify, multilabel, regress, rerank,
        tag, span, choose, or a kind of your own by its dotted name.
    labels
        Names of its outputs in their order, with commas: no,yes. They replace those of the config.
    anyway
        Write the target also when a tensor is a PROBLEM; the exit status stays 1.
    """
    from osbert.runs.convert import ConversionSettings, ModelComparison, SourceModel, count
    from osbert.runs.convert import convert as run

    names = map(str.strip, labels.split(",") if labels else ())
    settings = ConversionSettings(to=to, task=task, labels=tuple(names), anyway=anyway)

    def show(event: Any) -> None:
        print_notices()(event)
        for line in event.lines() if isinstance(event, SourceModel | ModelComparison) else ():
            print(line, flush=True)

    watch = watching(show)
    converted = run(source, target, settings=settings, opening=opening, watch=watch)
    for note in (f"{target}: written as {to}", *converted.notes):
        watch(Notice(note))
    if converted.problems:
        raise UserError(f"{count(converted.problems)} above.", code="not-convertible")
    return converted
