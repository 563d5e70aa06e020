"""Sources and their targets: as one sequence, for an encoder and a decoder, or for a unified model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from osbert.data.example import Example, Integers, Target
from osbert.data.examples import Examples
from osbert.data.noise import Noise
from osbert.data.pack import Packer, PieceRun
from osbert.errors import UserError
from osbert.models.forms import Writing
from osbert.text.file_tokenizer import starting_piece
from osbert.text.tokenizer import Form
from osbert_lab.writing.decoder_inputs import decoder_example
from osbert_lab.writing.modes import source_of, with_mask, with_target
from osbert_lab.writing.objectives.unified import UnifiedLanguage

Sight = Literal["auto", "left_to_right", "prefix", "source"]
"""The tokens to which those of a source attend: the ones before, or all of the source (`prefix`). `source`: an encoder
reads the source and a decoder writes the target. `auto`: as the model was pretrained."""


def end_piece(form: Form) -> int:
    """Return the piece that ends a target. Raises UserError if the tokenizer has none."""
    if form.end is not None:
        return form.end
    raise UserError(
        "The tokenizer has no piece that ends a text, so that no model could learn to end one. Take one with special "
        "pieces, as osbert tokenizer train makes.",
        code="unsupported-model",
    )


@dataclass(frozen=True, kw_only=True)
class SourceLayout:
    """Lays out sources and targets with a packer: `before source between target end`, all in segment 0.

    For a decoder the source is a separate text, and the prompt consists of the pieces before a text
    (decoder_inputs.py). `most`: most pieces of a target, its end included. `name`: name of the target with the
    labels. `sight` as in `Sight`; `auto` means prefix.
    """

    packer: Packer
    most: int
    name: str
    sight: Sight = "auto"

    @property
    def room(self) -> int:
        """Return the most pieces of a source. Raises UserError if there is no room for any."""
        form, apart = self.packer.form, self.sight == "source"
        room = self.packer.length - len(form.before) - len(form.between) - self.most
        if apart and 1 + len(form.before) + self.most <= self.packer.length:
            return self.packer.room(1)
        if apart or room < 1:
            raise UserError(
                f"most is {self.most:,} pieces, but the model reads {self.packer.length:,} tokens. Lower most.",
                code="invalid-value",
            )
        return room

    def prompt(self, source: str, *, record: int = 0) -> Example:
        """Return a source as the prompt of a target. Pieces that do not fit are cut from its end and counted."""
        if self.sight == "source":
            read = self._read(source, record=record)
            begun = np.array([starting_piece(self.packer.tokenizer), *self.packer.form.before], np.int32)
            return replace(_special(begun, record=record), source=read, truncated=read.truncated)
        return self._sequence(self.packer.run(source), np.empty(0, np.int32), record=record)

    def with_target(self, source: str, target: str, *, record: int = 0) -> Example:
        """Return a source and its target; each piece of the target is the label of the token before it.

        A target with more than `most` pieces is cut and then has no end piece.
        """
        pieces = self.packer.run(target).ids
        whole = np.append(pieces, end_piece(self.packer.form)).astype(np.int32)
        target_ids = whole[: self.most]
        if self.sight == "source":
            text = _special(np.concatenate([np.array(self.packer.form.before, np.int32), target_ids]), record=record)
            text = replace(text, truncated=max(0, len(pieces) - self.most))
            return decoder_example(self._read(source, record=record), text, self.packer.tokenizer, name=self.name)
        example = self._sequence(self.packer.run(source), target_ids, record=record)
        first = len(example) - len(target_ids)
        # The last token of the source predicts the first piece of the target.
        labels = Target(labels=target_ids, index=np.arange(first - 1, len(example) - 1))
        cut = example.truncated + max(0, len(pieces) - self.most)
        return replace(example, targets={self.name: labels}, truncated=cut)

    def add_labels(self, examples: Examples, noise: Noise, *, rate: float) -> Examples:
        """Return the examples unchanged: they are labelled already."""
        return examples

    def _read(self, source: str, *, record: int) -> Example:
        """Return the encoder's input. Raises UserError if the target has no room."""
        run, _ = self.packer.run(source), self.room
        return self.packer.single(run.ids, run.words, record=record)

    def _sequence(self, source: PieceRun, target: Integers, *, record: int) -> Example:
        form, tokenizer = self.packer.form, self.packer.tokenizer
        source_ids = source.ids[: self.room]
        before, between = (np.array(pieces, np.int32) for pieces in (form.before, form.between))
        ids = np.concatenate([before, source_ids.astype(np.int32), between, target])
        count, first = len(ids), len(ids) - len(target)
        special = np.ones(count, np.bool_)
        special[len(before) : len(before) + len(source_ids)] = False
        special[first:] = target == end_piece(form)
        order = np.arange(count)
        if self.sight != "left_to_right":
            order = np.maximum(order - first + 1, 0)  # 0 over the source, then 1, 2, 3, ...
        return Example(
            ids=ids,
            segments=np.zeros(count, np.int8),
            words=~special & ~tokenizer.continuation[ids],
            special=special,
            order=order,
            record=record,
            truncated=len(source.ids) - len(source_ids),
        )


def _special(ids: Integers, *, record: int) -> Example:
    """Return pieces of a decoder's input, all marked special so that none is corrupted."""
    zeros = np.zeros(len(ids), np.int8)
    return Example(ids=ids, segments=zeros, words=zeros > 0, special=zeros == 0, record=record)


@dataclass(frozen=True, kw_only=True)
class UnifiedLayout:
    """Lays out sources and targets with a packer: `before source between target end`, each with its own segment.

    `most`: pieces of a target at most, its end included. `name`: that of the labels. `writes`: where the model predicts
    a piece of it.
    """

    packer: Packer
    most: int
    name: str
    writes: Writing

    @property
    def room(self) -> int:
        """Return the most pieces of a source."""
        form = self.packer.form
        return max(0, self.packer.length - len(form.before) - len(form.between) - self.most)

    def prompt(self, source: str, *, record: int = 0) -> Example:
        """Return a source as the prompt of a target. Pieces that do not fit are cut from its end and counted."""
        example = source_of(self.packer.tokenizer.encode(source), self.packer, most=self.most)
        example = with_mask(example, self.packer) if self.writes == "masked" else example
        return dataclasses.replace(example, record=record)

    def with_target(self, source: str, target: str, *, record: int = 0) -> Example:
        """Return a source and its target without labels. `add_labels` adds these, sampled anew at each call.

        A target with more than `most` pieces is cut and then has no end piece.
        """
        before = source_of(self.packer.tokenizer.encode(source), self.packer, most=self.most)
        ids = self.packer.tokenizer.encode(target)
        example = with_target(before, ids[: self.most], self.packer, closed=len(ids) < self.most)
        cut = example.truncated + max(0, len(ids) - self.most)
        return dataclasses.replace(example, record=record, truncated=cut)

    def add_labels(self, examples: Examples, noise: Noise, *, rate: float) -> Examples:
        """Mask a fraction `rate` of each target, or label each token with the next piece, depending on `writes`.

        The end piece belongs to the target.
        """
        objective = UnifiedLanguage(prediction=self.writes, rate=rate, sources=False)
        labelled_examples = objective.corrupt_all(examples, self.packer, noise)
        return dataclasses.replace(labelled_examples, targets={self.name: labelled_examples.targets[objective.name]})
