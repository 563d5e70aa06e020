"""osbert corpus show: prints a corpus's report with a sample, or its sequences with a recipe's masking."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.text import Text

from osbert.console.arguments import InputFile, checks_options
from osbert.console.output import Result, say
from osbert.console.recipe_options import schemas
from osbert.corpus.shards import open_corpus
from osbert.errors import UserError
from osbert.interop.opening import Opening
from osbert.options import parse_settings, takes_settings
from osbert.remote import display_path, local_copy
from osbert.reports.corpus_text import SAMPLE, changed_text, mixture_text, report_text, sample_text, verification_text
from osbert.runs.corpus import tokenizer_of
from osbert.terminal import open_console

RECIPE = "bert-base"
"""The recipe whose masking is shown by default."""


def masks_settings(words: Sequence[str]) -> Sequence[type]:
    """Return the schema of the recipe that --recipe names in the words after the verb."""
    options = dict(itertools.pairwise(words))
    return schemas(options.get("--recipe", RECIPE), words)


def _check(arguments: Mapping[str, Any]) -> None:
    for name in ("masks", "sample"):
        if arguments.get(name, 0) < 0:
            raise UserError(f"--{name} must be 0 or more, not {arguments[name]}.", code="invalid-value")
    masks = arguments.get("masks", 0)
    if masks and not arguments.keys().isdisjoint(("sample", "verify")):
        advice = "--masks shows masked sequences only, so it cannot be combined with --sample or --verify."
        raise UserError(advice, code="options-exclude-each-other")
    if not masks and not arguments.keys().isdisjoint(("settings", "recipe")):
        advice = "A recipe and its settings change only the masking. Add --masks 5 to show it."
        raise UserError(advice, code="options-exclude-each-other")


@checks_options(_check)
@takes_settings(masks_settings)
def show(
    folder: InputFile,
    /,
    *settings: Annotated[str, Parameter(allow_leading_hyphen=True)],
    sample: int | None = None,
    masks: int = 0,
    recipe: str = RECIPE,
    verify: bool = False,
    trust: bool = False,
) -> Result:
    """Show a corpus: its report and a sample, or sequences as a recipe would mask them.

    Parameters
    ----------
    folder
        A folder that `osbert corpus build` made.
    settings
        With --masks: settings that override the recipe's, as for `osbert pretrain`, such as --mlm.rate 0.3.
    sample
        Number of documents, spread over the corpus, whose first sentences are shown: 3 by default, 0 for none.
    masks
        Show this many sequences as pretraining sees them instead, and the measured rates of masking.
    recipe
        With --masks: the recipe, a TOML file or the name of a packaged one.
    verify
        Read all of it first and compare it with the hashes it was written with. `osbert pretrain` does so by itself up
        to 1 GiB. Of a corpus on an object store that is larger than the cache only the copied files are read. Input
        files that are still there are compared, too: of one over 16 MiB, 256 blocks.
    trust
        With --masks: import the code that the recipe names as an objective.
    """
    if masks:
        return _show_masks(local_copy(folder), recipe, settings, masks=masks, opening=Opening(trust=trust))
    corpus, console = open_corpus(folder), open_console()
    if verify:
        corpus.verify()
        say(console, verification_text(corpus))
        for line in changed_text(corpus):
            say(console, line)
    console.print(report_text(display_path(folder), corpus.report))
    if corpus.mixed:
        console.print(mixture_text(corpus))
    say(console, f"Unigram entropy {corpus.unigram_entropy:.3f} nats: the loss of guessing without context.")
    if sample != 0:
        console.print(*sample_text(corpus, tokenizer_of(corpus), sample or SAMPLE), sep="\n", soft_wrap=True)
    return {"folder": folder, "report": corpus.report, "unigram_entropy": corpus.unigram_entropy}


def _show_masks(folder: Path, recipe: str, settings: Sequence[str], *, masks: int, opening: Opening) -> Result:
    """Print sequences as a recipe masks them, and the measured rates."""
    from osbert.runs.pretrain.masks import sample_masks  # loads torch

    chosen = parse_settings(settings, *schemas(recipe, settings, opening=opening))
    samples, console = sample_masks(folder, recipe, chosen, least=masks, opening=opening), open_console()
    for part in samples.text(masks):
        console.print(part, soft_wrap=isinstance(part, Text))
    return {"sequences": len(samples.examples), "rates": samples.rates}
