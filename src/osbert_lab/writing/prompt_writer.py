"""Prompts -> generated texts: several together, or one as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from osbert.data.example import Example
from osbert.errors import UserError
from osbert.evaluation.forward import evaluating
from osbert.models.contract import Learner
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.text.file_tokenizer import AnyTokenizer, sentinel_ids
from osbert.training.memory import free_memory, release
from osbert_lab.writing.contract import CachedDecoder
from osbert_lab.writing.search import Limits, Written, WrittenPiece, WrittenRow, WrittenStep, write
from osbert_lab.writing.settings import Generation, GenerationOptions

ROWS = 64
"""Most rows, beams included, that are generated together."""
CACHE = 2**29
"""Most bytes of their keys and values, unless one prompt alone needs more."""
PARTIAL = "\ufffd"
"""The replacement character that decoding yields for an incomplete UTF-8 sequence."""


@dataclass(frozen=True, kw_only=True)
class PromptWriter:
    """Generates texts after prompts, sequences without an end.

    `pieces`: number of pieces that the head scores. `gaps`: whether the model's texts name the gaps of their sources;
    without sentinels the mask piece does.
    """

    learner: Learner
    decoder: CachedDecoder
    pieces: int
    tokenizer: AnyTokenizer
    options: GenerationOptions
    gaps: bool = False

    @classmethod
    def of(
        cls,
        learner: Learner,
        decoder: CachedDecoder | None,
        head: MaskedLanguageHead,
        tokenizer: AnyTokenizer,
        options: GenerationOptions,
    ) -> PromptWriter | None:
        """Return the writer for a head, with options that fit the model; None if the model cannot generate.

        `decoder`: the backbone's decoder for that head; a fresh copy is used.
        """
        if decoder is None:
            return None
        # At most half of the free memory is for copies of weights: keys and values need some, too.
        decoder = decoder.fresh(options.precision, spare=free_memory(decoder.device) // 2)
        options = options.fitting(learner.backbone.architecture.length)
        return cls(learner=learner, decoder=decoder, pieces=len(head.pieces), tokenizer=tokenizer, options=options)

    def write(self, prompts: Sequence[Example], *, first: int = 0) -> list[Generation]:
        """Generate a text after each prompt, in order; prompt k is sampled with the number `first` + k."""
        generations: dict[int, Generation] = {}
        for numbers in self._together(prompts):
            sample_numbers = [first + number for number in numbers]
            for event in self._events([prompts[number] for number in numbers], sample_numbers):
                if isinstance(event, WrittenRow):
                    number = numbers[event.row]
                    generations[number] = self._to_generation(event, prompts[number])
        return [generations[number] for number in range(len(prompts))]

    def parts(self, prompts: Sequence[Example]) -> Iterator[tuple[int, str | Generation]]:
        """Yield (index of the prompt, part of its text) while the texts are generated.

        A part is yielded as soon as later pieces cannot change it, "" after a step without such a part. The Generation
        with the whole text follows the last part.
        """
        for numbers in self._together(prompts):
            pieces: dict[int, list[int]] = {number: [] for number in numbers}
            lengths = dict.fromkeys(numbers, 0)
            for event in self._events([prompts[number] for number in numbers], numbers):
                if isinstance(event, WrittenStep):
                    yield numbers[0], ""
                    continue
                number = numbers[event.row]
                if isinstance(event, WrittenPiece):
                    pieces[number].append(event.piece)
                else:
                    pieces[number] = [*event.pieces]
                whole = self._text(prompts[number], pieces[number])
                # A character whose bytes are incomplete is held back until the next piece.
                certain = isinstance(event, WrittenRow) or not whole.endswith(PARTIAL)
                yield number, whole[lengths[number] :] if certain else ""
                lengths[number] = max(lengths[number], len(whole)) if certain else lengths[number]
                if isinstance(event, WrittenRow):
                    yield number, self._to_generation(event, prompts[number])

    def stream(self, prompt: Example) -> Iterator[str]:
        """Yield the text after one prompt in parts, while it is generated."""
        return (part for _, part in self.parts([prompt]) if isinstance(part, str) and part)

    def _events(self, prompts: Sequence[Example], numbers: Sequence[int]) -> Iterator[Written]:
        events = write(self.decoder, prompts, self.options, self._limits, numbers=numbers)
        while True:  # the caller's code between two events runs with gradients as it wants them
            with evaluating(self.learner):
                event = next(events, None)
            if event is None:
                return
            yield event

    @property
    def _limits(self) -> Limits:
        """Return the piece that ends a text, and the mask of pieces that are never generated."""
        end = self.tokenizer.form.end
        never = torch.zeros(self.pieces, dtype=torch.bool, device=self.decoder.device)
        # The head may score more pieces than the tokenizer has.
        never[len(self.tokenizer) :] = True
        masks = self.gaps and not len(sentinel_ids(self.tokenizer))
        for name in ("pad", "unknown", "cls", "sep", *(() if masks else ("mask",))):
            piece = _special(self.tokenizer, name)
            if piece is not None and piece != end:
                never[piece] = True
        rules = self.options.rules
        never[[piece for piece in rules.never if 0 <= piece < self.pieces and piece != end]] = True
        first = None
        if rules.never_first:
            first = never.clone()
            first[[piece for piece in rules.never_first if 0 <= piece < self.pieces]] = True
        return Limits(end=end, never=never if bool(never.any()) else None, never_first=first)

    def _together(self, prompts: Sequence[Example]) -> Iterator[list[int]]:
        """Yield groups of prompts' indices, of similar lengths, that are continued together."""
        options = self.options
        sizes = [self._size(prompt) for prompt in prompts]
        left = self._free_after(max(sizes, default=0))
        together: list[int] = []
        for number in sorted(range(len(prompts)), key=lambda number: _read_of(prompts[number])):
            count = len(together) + 1
            if together and (count * options.beams > ROWS or count * sizes[number] > min(CACHE, left)):
                yield together
                together = []
            together.append(number)
        if together:
            yield together

    def require_memory(self, prompts: Sequence[Example]) -> None:
        """Raise UserError, before any work, if the memory does not suffice for one of the prompts."""
        self._free_after(max(map(self._size, prompts), default=0))

    def _size(self, prompt: Example) -> int:
        return self.decoder.memory(prompt, most=self.options.most, beams=self.options.beams)

    def _free_after(self, largest: int) -> int:
        """Return the bytes that are free for keys and values beside the copies of weights.

        Raises UserError if those of one prompt's rows, `largest`, need more.
        """
        options = self.options
        copies = self.decoder.copies(rows=options.beams, most=options.most)
        free = free_memory(self.decoder.device)
        if largest + copies > free:
            # Work before this, such as training, may have left memory that the process keeps for later.
            release()
            free = free_memory(self.decoder.device)
        if largest + copies > free:
            weights = f", and copies of the weights {copies / 1e9:,.3f} GB" if copies else ""
            raise UserError(
                f"The keys and values of one text take {largest / 1e9:,.3f} GB{weights}; {free / 1e9:,.3f} GB of "
                f"memory are free. Lower {options.costliest}, which is {getattr(options, options.costliest):,}.",
                code="out-of-memory",
            )
        return free - copies

    def _to_generation(self, row: WrittenRow, prompt: Example) -> Generation:
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
        """Return the text that pieces add after the last pieces of the prompt."""
        # A special piece at the end of the prompt, such as after a source, separates the two texts.
        before = [] if prompt.special[-1] else prompt.ids[~prompt.special].tolist()[-8:]
        return self.tokenizer.decode([*before, *pieces])[len(self.tokenizer.decode(before)) :]


def _read_of(prompt: Example) -> int:
    """Return the number of tokens of a prompt and its source."""
    return len(prompt) + (0 if prompt.source is None else len(prompt.source))


def _special(tokenizer: AnyTokenizer, name: str) -> int | None:
    """Return a special piece by its name, None if the tokenizer has none."""
    try:
        piece: int = getattr(tokenizer, name)
    except UserError:
        return None
    return piece
