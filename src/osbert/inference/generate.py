"""Texts -> what a model writes after them, or from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch

from osbert.data.example import Example
from osbert.data.modes import Prediction, source_of, with_target
from osbert.data.pack import Packer
from osbert.errors import Problems, UserError
from osbert.evaluation.forward import evaluating
from osbert.models.contract import Learner
from osbert.models.generation.contract import CachedDecoder
from osbert.models.generation.search import Limits, WrittenPiece, WrittenRow, write
from osbert.models.generation.settings import GenerationOptions
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.form import Form

ROWS = 64
"""Most rows, beams counted, that are written side by side."""
CACHE = 2**29
"""Most bytes of keys and values of such rows, unless one prompt alone has more."""
PARTIAL = "\ufffd"
"""What stands for the bytes of a character that is not whole."""


@dataclass(frozen=True, kw_only=True)
class Generation:
    """What a model wrote after a text, or from it.

    `text`: what was written; where a space belongs between it and a text that it goes on with, it begins with one.
    `pieces`: how many it is made of. `log_probability`: of them all, and of the end if it was written, in nats.
    `ended`: "end", the model ended the text; "most": it wrote as many pieces as it was allowed to. `truncated`: pieces
    of the given text that were not read: of its beginning where the model goes on with it, else of its end.
    """

    text: str
    pieces: int
    log_probability: float
    ended: Literal["end", "most"]
    truncated: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)


class PieceWriter(Protocol):
    """What writes: an `inference.engine.Engine`, or another object with these."""

    pieces: MaskedLanguageHead | None
    tokenizer: AnyTokenizer

    @property
    def learner(self) -> Learner:
        """Return torch's model."""


@dataclass(frozen=True, kw_only=True)
class TextWriter:
    """A model that goes on with texts, or writes another text from each; `pieces`: how many it has scores for.

    `writes`: how it writes from a source, None where it goes on with texts (data/modes.py).
    """

    learner: Learner
    decoder: CachedDecoder
    pieces: int
    tokenizer: AnyTokenizer
    options: GenerationOptions
    writes: Prediction | None = None

    @classmethod
    def of(cls, engine: PieceWriter, options: GenerationOptions) -> TextWriter:
        """Return what writes with these options. Raises UserError where a model cannot, or an option cannot be."""
        options.require_possible()
        head, backbone = engine.pieces, engine.learner.backbone
        decoder = None if head is None else backbone.decoder(head)
        if head is None or decoder is None:
            raise UserError(
                "The model does not write texts: that needs one that was pretrained left to right, or from a source, "
                'with its language head (objectives = ["left_to_right"] or ["unified"], or a GPT-2 folder).',
                code="unsupported-model",
            )
        length = backbone.architecture.length
        options = options.fitting(length)
        form = engine.tokenizer.form
        if options.most >= length - len(form.before) - (len(form.between) if head.writes else 0):
            raise UserError(
                f"most is {options.most:,}, but the model reads {length:,} tokens, and some are the text's.",
                code="invalid-value",
            )
        return cls(
            learner=engine.learner,
            decoder=decoder,
            pieces=len(head.pieces),
            tokenizer=engine.tokenizer,
            options=options,
            writes=head.writes,
        )

    def unread(self, text: str) -> int:
        """Return how many pieces of a text are not read, since no room would be left to write."""
        return self._prompt(text).truncated

    def texts(self, texts: Sequence[str]) -> list[Generation]:
        """Return what is written after each text, in the order given."""
        prompts = self._prompts(texts)
        found: dict[int, Generation] = {}
        for numbers in self._together(prompts):
            for event in self._written([prompts[number] for number in numbers], numbers):
                if isinstance(event, WrittenRow):
                    number = numbers[event.row]
                    found[number] = self._finished(event, prompts[number])
        return [found[number] for number in range(len(prompts))]

    def stream(self, text: str) -> Iterator[str]:
        """Yield what is written after a text in parts, each as soon as no later piece changes it."""
        [prompt] = self._prompts([text])
        pieces: list[int] = []
        said = 0
        for event in self._written([prompt], [0]):
            if isinstance(event, WrittenPiece):
                pieces.append(event.piece)
            else:
                pieces = list(event.pieces)
            whole = self._text(prompt, pieces)
            if isinstance(event, WrittenPiece) and whole.endswith(PARTIAL):
                continue
            if len(whole) > said:
                yield whole[said:]
            said = len(whole)

    def _written(self, prompts: Sequence[Example], numbers: Sequence[int]) -> Iterator[WrittenPiece | WrittenRow]:
        events = write(self.decoder, prompts, self.options, self._limits, numbers=numbers)
        while True:  # the caller's code between two events runs with gradients as it wants them
            with evaluating(self.learner):
                event = next(events, None)
            if event is None:
                return
            yield event

    @property
    def _limits(self) -> Limits:
        """Return the piece that ends a text, and the special pieces that no text has."""
        end = end_of(self.tokenizer.form)
        never = torch.zeros(self.pieces, dtype=torch.bool, device=self.decoder.device)
        never[len(self.tokenizer) :] = True
        for name in ("pad", "unknown", "cls", "sep", "mask"):
            piece = _special(self.tokenizer, name)
            if piece is not None and piece != end:
                never[piece] = True
        return Limits(end=end, never=never if bool(never.any()) else None)

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
        if self.writes:
            packer = Packer(tokenizer=self.tokenizer, length=self.learner.backbone.architecture.length)
            source = source_of(self.tokenizer.encode(text), packer, most=self.options.most)
            asked = np.array([self.tokenizer.mask], np.int32)
            return source if self.writes == "shifted" else with_target(source, asked, packer, closed=False)
        form = self.tokenizer.form
        before = form.before or (() if text else form.between[:1])
        ids = self.tokenizer.encode(text)
        room = self.learner.backbone.architecture.length - self.options.most - len(before)
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

    def _together(self, prompts: Sequence[Example]) -> Iterator[list[int]]:
        """Yield the numbers of the prompts that are continued side by side, of nearly one length."""
        sizes = self.learner.backbone.architecture
        token = 8 * sizes.layers * getattr(sizes, "width", 0)  # bytes of its keys and values in float32
        together: list[int] = []
        for number in sorted(range(len(prompts)), key=lambda number: len(prompts[number])):
            longest = len(prompts[number]) + self.options.most
            rows = (len(together) + 1) * self.options.beams
            if together and (rows > ROWS or rows * longest * token > CACHE):
                yield together
                together = []
            together.append(number)
        if together:
            yield together

    def _finished(self, row: WrittenRow, prompt: Example) -> Generation:
        if not np.isfinite(row.log_probability):
            raise UserError(
                "The model gives scores that are NaN or infinite: its weights are damaged, or its training has failed. "
                "Copy it again, or train it again.",
                code="not-finite",
            )
        return Generation(
            text=self._text(prompt, row.pieces),
            pieces=len(row.pieces),
            log_probability=row.log_probability,
            ended=row.ended,
            truncated=prompt.truncated,
        )

    def _text(self, prompt: Example, pieces: Sequence[int]) -> str:
        """Return pieces as text: what they add to that of the prompt's last pieces where the model goes on with it."""
        if self.writes:
            return self.tokenizer.decode(pieces)
        before = prompt.ids[~prompt.special].tolist()[-8:]
        return self.tokenizer.decode([*before, *pieces])[len(self.tokenizer.decode(before)) :]


def end_of(form: Form) -> int | None:
    """Return the piece that ends a text, None where there is none.

    >>> end_of(Form(before=(2,), between=(3,), after=(3,)))
    3
    """
    return next(iter((*form.after, *form.between)), None)


def _special(tokenizer: AnyTokenizer, name: str) -> int | None:
    """Return a special piece by its name, None where the tokenizer has none such."""
    try:
        piece: int = getattr(tokenizer, name)
    except UserError:
        return None
    return piece
