"""Prompts -> what a model writes after them: several side by side, and one while it is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from osbert.data.example import Example
from osbert.errors import UserError
from osbert.evaluation.forward import evaluating
from osbert.models.contract import Learner
from osbert.models.generation.contract import CachedDecoder
from osbert.models.generation.search import Limits, Written, WrittenPiece, WrittenRow, WrittenStep, write
from osbert.models.generation.settings import GenerationOptions
from osbert.models.generation.written import Generation
from osbert.models.heads.predictions import MaskedLanguageHead
from osbert.tasks import Task
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.training.memory import device_memory

ROWS = 64
"""Most rows, beams counted, that are written side by side."""
CACHE = 2**29
"""Most bytes of keys and values of such rows, unless one prompt alone has more."""
PARTIAL = "\ufffd"
"""What stands for the bytes of a character that is not whole."""


def written_for(learner: Learner, task: Task, tokenizer: AnyTokenizer, prompts: Sequence[Example]) -> list[Generation]:
    """Return what a model writes after each prompt for a task of the form text, in the order given."""
    head = learner.heads[task.name]
    assert isinstance(head, MaskedLanguageHead)
    writer = PromptWriter.of(learner, learner.backbone.decoder(head), head, tokenizer, task.writing)
    assert writer is not None  # else the task would have refused the model
    return writer.written(prompts)


@dataclass(frozen=True, kw_only=True)
class PromptWriter:
    """A model that writes after prompts, which are sequences without an end; `pieces`: how many it has scores for."""

    learner: Learner
    decoder: CachedDecoder
    pieces: int
    tokenizer: AnyTokenizer
    options: GenerationOptions

    @classmethod
    def of(
        cls,
        learner: Learner,
        decoder: CachedDecoder | None,
        head: MaskedLanguageHead,
        tokenizer: AnyTokenizer,
        options: GenerationOptions,
    ) -> PromptWriter | None:
        """Return what writes with the scores of a head and possible options, None where the model cannot.

        `decoder`: the backbone's for that head, of which it takes a fresh one.
        """
        if decoder is None:
            return None
        decoder = decoder.fresh(options.precision)
        options = options.fitting(learner.backbone.architecture.length)
        return cls(learner=learner, decoder=decoder, pieces=len(head.pieces), tokenizer=tokenizer, options=options)

    def written(self, prompts: Sequence[Example], *, first: int = 0) -> list[Generation]:
        """Return what is written after each prompt, in the order given; with `first` the seed draws for each."""
        found: dict[int, Generation] = {}
        for numbers in self._together(prompts):
            own = [first + number for number in numbers]
            for event in self._events([prompts[number] for number in numbers], own):
                if isinstance(event, WrittenRow):
                    number = numbers[event.row]
                    found[number] = self._finished(event, prompts[number])
        return [found[number] for number in range(len(prompts))]

    def parts(self, prompts: Sequence[Example]) -> Iterator[tuple[int, str | Generation]]:
        """Yield what is written after prompts while it is written, each part with its prompt's place in the list.

        A part is yielded as soon as no later piece changes it, "" after a step in which nothing became certain; the
        whole follows the last part, as a Generation.
        """
        for numbers in self._together(prompts):
            pieces: dict[int, list[int]] = {number: [] for number in numbers}
            said = dict.fromkeys(numbers, 0)
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
                certain = isinstance(event, WrittenRow) or not whole.endswith(PARTIAL)
                yield number, whole[said[number] :] if certain else ""
                said[number] = max(said[number], len(whole)) if certain else said[number]
                if isinstance(event, WrittenRow):
                    yield number, self._finished(event, prompts[number])

    def stream(self, prompt: Example) -> Iterator[str]:
        """Yield what is written after one prompt in parts, while it is written."""
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
        """Return the piece that ends a text, and the special pieces that no text has."""
        end = self.tokenizer.form.end
        never = torch.zeros(self.pieces, dtype=torch.bool, device=self.decoder.device)
        never[len(self.tokenizer) :] = True
        for name in ("pad", "unknown", "cls", "sep", "mask"):
            piece = _special(self.tokenizer, name)
            if piece is not None and piece != end:
                never[piece] = True
        return Limits(end=end, never=never if bool(never.any()) else None)

    def _together(self, prompts: Sequence[Example]) -> Iterator[list[int]]:
        """Yield the numbers of the prompts that are continued side by side, of nearly one length."""
        sizes = self.learner.backbone.architecture
        token = 8 * sizes.layers * getattr(sizes, "width", 0)  # bytes of its keys and values in float32
        together: list[int] = []
        for number in sorted(range(len(prompts)), key=lambda number: _read_of(prompts[number])):
            longest = _read_of(prompts[number]) + self.options.most
            rows = (len(together) + 1) * self.options.beams
            self._require_memory(self.options.beams * longest * token)
            if together and (rows > ROWS or rows * longest * token > CACHE):
                yield together
                together = []
            together.append(number)
        if together:
            yield together

    def _require_memory(self, needed: int) -> None:
        """Raise UserError if the keys and values of one prompt's rows take more memory than there is."""
        if needed > (there := device_memory(self.decoder.device)):
            field = "beams" if self.options.beams > 1 else "most"
            raise UserError(
                f"The keys and values of one text take {needed / 1e9:,.1f} GB, and there are {there / 1e9:,.1f} GB of "
                f"memory. Lower {field}, which is {getattr(self.options, field):,}.",
                code="out-of-memory",
            )

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
        """Return pieces as text: what they add to that of the prompt's last pieces."""
        # A special piece at its end, as after a source, parts the two texts.
        before = [] if prompt.special[-1] else prompt.ids[~prompt.special].tolist()[-8:]
        return self.tokenizer.decode([*before, *pieces])[len(self.tokenizer.decode(before)) :]


def _read_of(prompt: Example) -> int:
    """Return how many tokens of a prompt and its source are read."""
    return len(prompt) + (0 if prompt.source is None else len(prompt.source))


def _special(tokenizer: AnyTokenizer, name: str) -> int | None:
    """Return a special piece by its name, None where the tokenizer has none such."""
    try:
        piece: int = getattr(tokenizer, name)
    except UserError:
        return None
    return piece
