"""Converts files of word vectors to run folders, and static models to such files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import osbert
from osbert.errors import UserError
from osbert.files import require_file, require_free, whole_folder, write_json
from osbert.interop.folder import open_folder
from osbert.interop.opening import Opening
from osbert.training.run_folder import FACTS, RunFolder
from osbert_lab.static_vectors.word_vectors import (
    SUFFIXES,
    VectorForm,
    read_word_vectors,
    vectors_of,
    write_word_vectors,
)


@dataclass(frozen=True)
class VectorFiles:
    """Files of word vectors in one of their forms."""

    form: VectorForm
    content: ClassVar[str] = "word vectors"

    def has_name_of(self, path: Path) -> bool:
        """Return whether a path is a file of word vectors, judged by its name."""
        return path.suffix in SUFFIXES

    def read(self, source: Path, target: Path) -> list[str]:
        """Write a run folder with the vectors of a file; return remarks for the user."""
        require_free(target)
        vectors = read_word_vectors(source)
        with whole_folder(target) as folder:
            remark = vectors.write_model(folder)
            facts = {"osbert": osbert.__version__, "command": "convert", "source": str(source), "form": "vectors"}
            write_json(folder / FACTS, {**facts, "settings": {}})
            RunFolder(folder).finish({})
        return [remark] if remark else []

    def write(self, source: Path, target: Path, opening: Opening) -> None:
        """Write the vectors of a model without layers to a file. Raises UserError for any other model."""
        require_file(target)
        if target.suffix not in SUFFIXES or (self.form == "glove" and target.suffix == ".bin"):
            allowed = ".txt" if self.form == "glove" else ".txt or .vec (text) or .bin (binary)"
            raise UserError(
                f"{target}: the name of a file of word vectors in the format {self.form} must end in {allowed}.",
                code="invalid-value",
            )
        folder = open_folder(source, opening)
        if folder.architecture.layers:
            raise UserError(
                f"{source} has {folder.architecture.layers} layers, so its vectors depend on the context. A file "
                "of word vectors has one vector per word. osbert embed writes the vectors of texts.",
                code="not-convertible",
            )
        table = folder.backbone.embedding
        assert table is not None
        write_word_vectors(target, vectors_of(folder.tokenizer.vocabulary, table.weight), self.form)


WORD2VEC, GLOVE = VectorFiles("word2vec"), VectorFiles("glove")
"""The forms, for the entry points."""
