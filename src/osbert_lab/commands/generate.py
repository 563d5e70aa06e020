"""osbert generate: continues a text, or writes a target text for it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal  # noqa: F401  (cyclopts looks up inherited fields' types in this module)

from cyclopts import Parameter

from osbert.console.arguments import InputFile, ModelFolder, OpeningOptions, require_texts_or_file
from osbert.console.file_consoles import showing_progress
from osbert.console.output import Result, for_people, print_notices
from osbert.errors import UserError
from osbert.interop.opening import CAREFUL
from osbert.runs.contract import Notice, Watch
from osbert.runs.file_options import EmbeddedTaskOptions, TextFile
from osbert.terminal import format_count
from osbert_lab.writing.settings import GivenOptions

if TYPE_CHECKING:
    from osbert_lab.writing.text_writer import TextWriter


def generate(
    model: ModelFolder,
    /,
    *texts: str,
    file: Annotated[InputFile | None, Parameter(allow_leading_hyphen=True)] = None,
    out: Path | None = None,
    options: Annotated[GivenOptions | None, Parameter(name="*")] = None,
    reading: Annotated[EmbeddedTaskOptions | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Continue texts: print each with the model's continuation; or generate a target text for each.

    The model was pretrained left to right, as by the recipe gpt-small, or is a GPT-2 folder; or it writes from a
    source, as by unilm-small or t5-small, a T5 or BART folder, or osbert finetune generate, whose own settings count
    where none are given: then what it writes is printed alone. Of one text the pieces are printed while they are
    written; with beams nothing is certain before the end.

    Parameters
    ----------
    model
        The folder of a model that writes, or its name on the hub.
    texts
        The texts, each in quotes; write -- before one that begins with a hyphen.
    file
        A CSV, TSV, JSON-lines, Parquet or text file, a text a row; - for standard input.
    out
        With --file: the .csv, .tsv, .jsonl, .parquet, .xlsx or .md file to write, the rows with the text generated for
        each.
    """
    from osbert.inference.engine import load
    from osbert_lab.writing.row_file import generate_file
    from osbert_lab.writing.text_writer import TextWriter as Writer
    from osbert_lab.writing.text_writer import describe_remarks

    usage = 'Give texts, as in osbert generate MODEL "It was a", or a file: --file in.csv --out out.csv.'
    require_texts_or_file(usage, texts, file, out)
    options, reading = options or GivenOptions(), reading or EmbeddedTaskOptions()
    if texts and replace(reading, device="auto") != EmbeddedTaskOptions():
        raise UserError("--text and how to read a file go with --file, not with texts.", code="missing-option")
    if file and out:
        rows = TextFile(file, reading)
        with showing_progress("rows") as watch:
            tally = generate_file(model, rows, out=out, writing=options, opening=opening, watch=watch)
        print(*tally.lines(), sep="\n")
        return tally
    engine = load(model, device=reading.device, opening=opening)
    notices = print_notices(sys.stderr)
    for remark in describe_remarks(engine):
        notices(Notice(remark))
    return _show(Writer.of(engine, options), texts, notices)


def _show(writer: TextWriter, texts: Sequence[str], notices: Watch) -> Result:
    """Print the generated texts and return them; a single text is printed while it is generated."""
    samples = [(text,) for text in texts] if writer.goes_on or writer.reads == 1 else [texts]
    for sample in samples:
        if unread := writer.unread(*sample):
            part = "beginning" if writer.goes_on else "end"
            notices(Notice(f"{format_count(unread, 'piece')} of the {part} of '{sample[-1]:.40}' not read"))
    begun = [sample[0] if writer.goes_on else "" for sample in samples]
    if alone := len(samples) == 1 and for_people():
        print(begun[0], end="", flush=True)
        whole = begun[0]
        for part in writer.stream(*samples[0]):
            print(part if whole else part.lstrip(), end="", flush=True)
            whole += part
        print()
        outputs = [whole[len(begun[0]) :]]
    else:
        generations = writer.texts(samples)
        outputs = [generation.text for generation in generations]
        print(*(before + text if before else text.strip() for before, text in zip(begun, outputs)), sep="\n")
    if silent := outputs.count(""):
        notices(Notice(f"{format_count(silent, 'text')} ended at once: the model wrote nothing"))
    return None if alone else {"generations": [generation.as_dict() for generation in generations]}
