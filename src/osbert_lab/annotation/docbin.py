"""spaCy's .spacy files, a DocBin in zlib; needs spaCy.

Entities and classes are read; a class counts if its value is at least 0.5.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, ClassVar

from osbert.errors import UserError
from osbert.reading.data_file import DataFile
from osbert.reading.form import TableReading
from osbert.reading.table import Entry, FileForm
from osbert_lab.annotation.spacy import classes


class DocBin(FileForm):
    """A .spacy file."""

    title: ClassVar[str] = "spaCy DocBin"
    suffixes = (".spacy",)

    @classmethod
    def claims(cls, file: DataFile) -> bool:
        """Return whether a file is called .spacy; a damaged one is then reported as such."""
        return file.path.suffix.lower() == ".spacy"

    def load(self, file: DataFile, reading: TableReading) -> list[Entry]:
        """Return the documents. Raises UserError if spaCy is missing, and if the file is damaged."""
        try:
            import spacy
            import spacy.tokens
        except ImportError as error:
            raise UserError(
                f"{file.path}: .spacy files need spaCy. Install it with pip install spacy, or write JSON lines "
                "with Doc.to_json.",
                code="missing-library",
            ) from error
        content = file.read_all()
        try:
            if len(zlib.decompressobj().decompress(content, file.most_unpacked + 1)) > file.most_unpacked:
                raise file.too_large()
            documents = spacy.tokens.DocBin().from_bytes(content).get_docs(spacy.blank("xx").vocab)
            return list(_rows(documents))
        except UserError:
            raise
        except Exception as error:  # spaCy raises what it meets
            raise UserError(
                f"{file.path}: not a DocBin that can be read ({type(error).__name__}: {error}). Write it again with "
                "DocBin.to_disk.",
                code="damaged-file",
            ) from error


def _rows(documents: Iterator[Any]) -> Iterator[Entry]:
    """Yield the number and the row of each document; its entities are None if no word of it says."""
    for number, document in enumerate(documents, 1):
        spans = [[span.start_char, span.end_char, span.label_] for span in document.ents]
        entities = spans if document.has_annotation("ENT_IOB") else None
        yield number, {"text": document.text, "entities": entities} | classes(document.cats)
