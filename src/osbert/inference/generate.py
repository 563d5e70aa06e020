"""Texts -> what a model writes after them, or from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from osbert.data.example import Example
from osbert.data.modes import Prediction, source_of, with_mask
from osbert.data.pack import Packer
from osbert.data.written import started
from osbert.errors import Problems, UserError
from osbert.evaluation.writing import PromptWriter
from osbert.models.contract import Learner
from osbert.models.generation.settings import GenerationOptions
from osbert.models.generation.written import Generation
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.text.file_tokenizer import AnyTokenizer


class PieceWriter(Protocol):
    """What writes: an `inference.engine.Engine`, or another object with these."""

    pieces: MaskedLanguageHead | None
    tokenizer: AnyTokenizer

    @property
    def learner(self) -> Learner:
        """Return torch's model."""


@dataclass(frozen=True, kw_only=True)
class TextWriter:
    """A model that goes on with texts, or writes another from each, by a `writer` that goes on with prompts.

    `writes`: how it writes from a source, None where it goes on with texts (data/modes.py).
    """

    writer: PromptWriter
    writes: Prediction | None = None

    @classmethod
    def of(cls, engine: PieceWriter, options: GenerationOptions) -> TextWriter:
        """Return what writes with these options. Raises UserError where a model cannot, or an option cannot be."""
        options.require_possible()
        head = engine.pieces
        writer = None if head is None else PromptWriter.of(engine.learner, head, engine.tokenizer, options)
        if head is None or writer is None:
            raise UserError(
                "The model does not write texts: that needs one that was pretrained left to right, or from a source, "
                'with its language head (objectives = ["left_to_right"], ["unified"] or ["spans"], or a GPT-2 folder '
                "or T5's).",
                code="unsupported-model",
            )
        length = engine.learner.backbone.architecture.length
        form = engine.tokenizer.form
        if writer.options.most >= length - len(form.before) - (len(form.between) if head.writes else 0):
            raise UserError(
                f"most is {writer.options.most:,}, but the model reads {length:,} tokens, and some are the text's.",
                code="invalid-value",
            )
        decodes = engine.learner.backbone.architecture.has_decoder
        return cls(writer=writer, writes="shifted" if decodes else head.writes)

    def unread(self, text: str) -> int:
        """Return how many pieces of a text are not read, since no room would be left to write."""
        return self._prompt(text).truncated

    def texts(self, texts: Sequence[str]) -> list[Generation]:
        """Return what is written after each text, in the order given."""
        return self.writer.written(self._prompts(texts))

    def stream(self, text: str) -> Iterator[str]:
        """Yield what is written after a text in parts, each as soon as no later piece changes it."""
        [prompt] = self._prompts([text])
        return self.writer.stream(prompt)

    def _prompts(self, texts: Sequence[str]) -> list[Example]:
        problems = Problems(heading="These texts cannot be continued")
        prompts = []
        for place, text in enumerate(texts):
            prompt = self._prompt(text)
            if not len(prompt):
                problems.add(f"texts[{place}] is empty, and no piece of the model begins a text.", code="empty-text")
            prompts.append(prompt)
        problems.stop_if_any()
        return prompts

    def _prompt(self, text: str) -> Example:
        """Return a text as a sequence without an end; of a long one the last pieces that leave room for the answer.

        Where the model writes from a source, the first ones, and with the [MASK] behind it that the model reads.
        """
        writer = self.writer
        if writer.learner.backbone.architecture.has_decoder:
            packer = Packer(tokenizer=writer.tokenizer, length=writer.learner.backbone.architecture.length)
            return started(packer.single(*packer.run(text)), writer.tokenizer)
        if self.writes:
            packer = Packer(tokenizer=writer.tokenizer, length=writer.learner.backbone.architecture.length)
            source = source_of(writer.tokenizer.encode(text), packer, most=writer.options.most)
            return source if self.writes == "shifted" else with_mask(source, packer)
        form = writer.tokenizer.form
        before = form.before or (() if text else form.between[:1])
        ids = writer.tokenizer.encode(text)
        room = writer.learner.backbone.architecture.length - writer.options.most - len(before)
        kept = ids[max(len(ids) - room, 0) :]
        whole = np.concatenate([np.array(before, np.int32), kept.astype(np.int32)])
        special = np.arange(len(whole)) < len(before)
        return Example(
            ids=whole,
            segments=np.zeros(len(whole), np.int8),
            words=~special,
            special=special,
            truncated=len(ids) - len(kept),
        )
