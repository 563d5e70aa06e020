"""osbert generate: what a model writes after a text, or from it."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from osbert.commands.opening_options import ModelFolder, OpeningOptions
from osbert.commands.output import Result, for_people
from osbert.commands.printing import print_notices
from osbert.errors import UserError
from osbert.interop.opening import CAREFUL
from osbert.models.generation.settings import GenerationOptions
from osbert.runs.contract import Notice, report_remarks
from osbert.terminal import counted


def generate(
    model: ModelFolder,
    /,
    *texts: str,
    options: Annotated[GenerationOptions | None, Parameter(name="*")] = None,
    opening: OpeningOptions = CAREFUL,
) -> Result:
    """Go on with texts: print each with what the model writes after it; or write another text from each.

    The model must have been pretrained left to right, as by the recipe gpt-small, or be a GPT-2 folder; or to write
    from a source, as by unilm-small or t5-mini: then what it writes is printed alone. Of one text the pieces are
    printed while they are written; with beams nothing is certain before the end.

    Parameters
    ----------
    model
        The folder of a pretrained model, or its name on the hub.
    texts
        The texts, each in quotes; write -- before one that begins with a hyphen.
    """
    from osbert.inference.engine import load
    from osbert.inference.generate import TextWriter

    if not texts:
        raise UserError('Give a text, as in osbert generate MODEL "It was a".', code="missing-option")
    options = options or GenerationOptions()
    options.require_possible()
    engine = load(model, opening=opening)
    notices = print_notices(sys.stderr)
    report_remarks(engine, notices)
    writer = TextWriter.of(engine, options)
    for text in texts:
        if unread := writer.unread(text):
            part = "end" if writer.writes else "beginning"
            notices(Notice(f"{counted(unread, 'piece')} of the {part} of '{text:.40}' not read"))
    if len(texts) == 1 and for_people():
        print("" if writer.writes else texts[0], end="", flush=True)
        for part in writer.stream(texts[0]):
            print(part, end="", flush=True)
        print()
        return None
    found = writer.texts(texts)
    for text, one in zip(texts, found, strict=True):
        print(one.text if writer.writes else text + one.text)
    return {"generations": [one.as_dict() for one in found]}
