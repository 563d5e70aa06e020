"""A mixture of corpora as a function: corpora and weights in, a folder that is pretrained on like any corpus out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from osbert.corpus.mixture import Mixture
from osbert.corpus.remote_corpus import open_corpus
from osbert.corpus.shards import MANIFEST, Corpus
from osbert.errors import Problems, UserError
from osbert.files import disk_needed, require_free, whole_folder
from osbert.interop.tokenizers import write_any_tokenizer
from osbert.lock import claim
from osbert.remote.addresses import display_path, local_copy
from osbert.remote.cache import reading_copies
from osbert.remote.output_folders import FolderForm, output_folder
from osbert.runs.corpus import tokenizer_of
from osbert.terminal import format_count

FORM = FolderForm(marker=MANIFEST, left_there=("shard-*",), keeps_unfinished=False)
"""A mixture on an object store."""


def mix_corpora(corpora: Sequence[Path], *, weights: str | Sequence[float] = "", out: Path) -> Corpus:
    """Mix corpora into the folder `out`, without copying their text where the file system has hard links; return it.

    `weights`: one for each corpus, also as text ("3,1"), by which the tokens of an epoch are divided; none for equal
    ones. Raises UserError, with all that is wrong, for weights that do not fit, for corpora not built alike, and for a
    full disk.
    """
    weights = _numbers(weights)
    _check(corpora, weights)
    require_free(out)
    with (
        disk_needed(out, goes_on=""),
        output_folder(out, FORM, inputs=corpora) as output,
        claim(output.path) as output_path,
        reading_copies(),
    ):
        require_free(output_path)
        opened = [Corpus.open(local_copy(folder)) for folder in corpora]
        each = weights or [1.0] * len(opened)
        mixture = Mixture(corpora=opened, fractions=[weight / sum(each) for weight in each])
        mixture.check()
        tokenizer = tokenizer_of(opened[0])
        with whole_folder(output_path) as folder:
            write_any_tokenizer(tokenizer, folder)
            mixture.write(folder)
    return open_corpus(out, whole=False)


def _numbers(weights: str | Sequence[float]) -> list[float]:
    if not len(weights):
        return []
    try:
        return [float(weight) for weight in (weights.split(",") if isinstance(weights, str) else weights)]
    except (TypeError, ValueError) as error:
        raise UserError(f"weights are numbers, such as 3,1, not {weights!r:.80}.", code="invalid-value") from error


def _check(corpora: Sequence[Path], weights: Sequence[float]) -> None:
    problems = Problems(heading="These corpora cannot be mixed")
    if len(corpora) < 2:
        problems.add("name two corpora or more.", code="invalid-value")
    seen: dict[str, Path] = {}
    for folder in corpora:
        where = str(folder.resolve()) if folder.exists() else display_path(folder)
        if where in seen:
            problems.add(f"{folder} is there twice: give it a larger weight.", code="invalid-value")
        seen[where] = folder
    if weights and len(weights) != len(corpora):
        problems.add(
            f"{format_count(len(weights), 'weight')} for {len(corpora)} corpora: give one for each.",
            code="invalid-value",
        )
    for weight in weights:
        if not 0 < weight < math.inf:
            problems.add(f"the weight {weight} is not above 0.", code="invalid-value")
    problems.stop_if_any()
