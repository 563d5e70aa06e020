"""Converts files of word vectors to run folders, and static models to such files."""

from __future__ import annotations

from pathlib import Path

import osbert
from osbert.errors import UserError
from osbert.files import require_file, require_free, whole_folder, write_json
from osbert.interop.folder import open_folder
from osbert.interop.opening import Opening
from osbert.interop.word_vectors import (
    SUFFIXES,
    VectorForm,
    read_word_vectors,
    vectors_of,
    write_word_vectors,
)
from osbert.training.run_folder import FACTS, RunFolder


def is_vector_file(path: Path) -> bool:
    """Return whether a path is a file of word vectors, judged by its name."""
    return path.is_file() and path.suffix in SUFFIXES


def read_into_folder(source: Path, target: Path) -> list[str]:
    """Write a run folder with the vectors of a file; return remarks for the user."""
    require_free(target)
    vectors = read_word_vectors(source)
    with whole_folder(target) as folder:
        remark = vectors.write_model(folder)
        facts = {"osbert": osbert.__version__, "command": "convert", "source": str(source), "form": "vectors"}
        write_json(folder / FACTS, {**facts, "settings": {}})
        RunFolder(folder).finish({})
    return [remark] if remark else []


def write_into_file(source: Path, target: Path, form: VectorForm, opening: Opening) -> None:
    """Write the vectors of a model without layers to a file. Raises UserError for any other model."""
    require_file(target)
    if target.suffix not in SUFFIXES or (form == "glove" and target.suffix == ".bin"):
        allowed = ".txt" if form == "glove" else ".txt or .vec (text) or .bin (binary)"
        raise UserError(f"{target}: a file of word vectors as {form} ends in {allowed}.", code="invalid-value")
    folder = open_folder(source, opening)
    if folder.architecture.layers:
        raise UserError(
            f"{source} has {folder.architecture.layers} layers, so that its vectors depend on the context; a file of "
            "word vectors has one for each word. osbert embed writes the vectors of texts.",
            code="not-convertible",
        )
    table = folder.backbone.embedding
    assert table is not None
    write_word_vectors(target, vectors_of(folder.tokenizer.vocabulary, table.weight), form)
