"""Word vectors as the input of a translator's encoder: found by the words' spelling, and never trained (CoVe)."""

from __future__ import annotations

from pathlib import Path

import torch

from osbert.errors import UserError
from osbert.interop.folder import open_folder
from osbert.interop.opening import CAREFUL
from osbert.models.adapting.tuning import freeze
from osbert.models.contract import Backbone
from osbert_lab.recurrent.translator import Translator


def keep_vectors(backbone: Backbone, folder: Path) -> int:
    """Give the words that a translator reads the vectors of a folder, freeze them, and return how many have one.

    A word without a vector gets 0. A backbone that was not made for a tokenizer keeps the vectors that it has, and 0 is
    returned. Raises UserError if no word has a vector.
    """
    assert isinstance(backbone, Translator)
    freeze([backbone.words])
    if not backbone.spelling:
        return 0
    source = open_folder(folder, CAREFUL)
    table = source.backbone.embedding
    assert table is not None
    rows = {word: row for row, word in enumerate(source.tokenizer.vocabulary)}
    known = [(index, rows[word]) for index, word in enumerate(backbone.spelling) if word in rows]
    if not known:
        raise UserError(
            f"{folder} has a vector for none of the {len(backbone.spelling):,} words of the vocabulary. Train the "
            "vocabulary with --kind words, in the language of the vectors.",
            code="mismatched-tokenizer",
        )
    indices, vector_rows = (torch.tensor(column) for column in zip(*known))
    with torch.no_grad():
        backbone.words.weight.zero_()
        backbone.words.weight[indices] = table.weight[vector_rows].to(backbone.words.weight.dtype)
    return len(known)
