"""Running text: plain files, JSON and Parquet with a column of texts, Wikipedia dumps, and archives of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.reading.documents import DocumentOptions, read_chunks
from osbert.reading.inputs import KNOWN, kind_of
from osbert.terminal import format_count
from osbert_lab.analysis.forms.contract import DataForm, FileHead, Sampling
from osbert_lab.analysis.sample import TextSample, draw, oddities, text_sample


class TextForm(DataForm):
    """Documents, sampled."""

    position = 90
    files = f"text ({KNOWN})"

    def knows(self, file: FileHead) -> bool:
        """Return whether the suffix is one of text; for XML, whether the file begins like a Wikipedia dump."""
        kind = kind_of(file.path.name)
        if kind == "wikipedia":
            return any("<mediawiki" in line for line in file.lines)
        return kind is not None

    def sample(self, files: Sequence[Path], sampling: Sampling) -> TextSample:
        """Return a sample of the documents of some files."""
        options = sampling.options
        packer = Packer(tokenizer=sampling.packer.tokenizer, length=options.length)
        document_sample = text_sample(
            documents(files, sampling.reading),
            packer,
            count=options.texts,
            shortest=options.shortest,
            # The second number tells the streams of the forms apart: 0 is for texts.
            rng=np.random.default_rng([options.seed, 0]),
        )
        return replace(document_sample, notes=_notes(document_sample, sampling))


def sentences_as_texts(examples: Sequence[Example], form: str, sampling: Sampling) -> TextSample:
    """Return a sample of another form's sentences, for data without other texts."""
    options = sampling.options
    fitting = [example for example in examples if len(example) >= options.shortest]
    drawn, _ = draw(fitting, options.texts, np.random.default_rng([options.seed, 0]))
    sample = TextSample(examples=drawn, read=len(examples), short=len(examples) - len(fitting))
    note = f"there are no other texts: the sentences of the {form} are read as texts"
    return replace(sample, notes=[*([note] if drawn else []), *_notes(sample, sampling)])


def documents(files: Sequence[Path], how: DocumentOptions) -> Iterator[str]:
    """Yield the text of each document; a document in several chunks yields each chunk."""
    if not files:
        return
    chunks = read_chunks(files, documents=how.documents, field=how.field, encoding=how.encoding, errors=how.errors)
    yield from (chunk.text for chunk in chunks)


def _notes(sample: TextSample, sampling: Sampling) -> list[str]:
    if not sample.read:
        return []
    return [
        f"{format_count(len(sample.examples), 'text')} of {sample.read:,} read, {sample.tokens:,} tokens; "
        f"{sample.short:,} had fewer than {sampling.options.shortest} tokens and {sample.cut:,} were not read whole",
        *oddities(sample, sampling.packer.tokenizer.unknown),
    ]
