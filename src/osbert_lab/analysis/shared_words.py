"""Texts for several models with their own tokenizers, and one word of each text that all models read whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from osbert.analysis.words import words_of_pieces
from osbert.data.example import Example, Integers
from osbert.data.pack import Packer, PieceRun
from osbert_lab.analysis.figures import Floats
from osbert_lab.analysis.sample import CHARACTERS, TextSample, draw, random_part


@dataclass(frozen=True, kw_only=True)
class SharedSample:
    """The same texts laid out for each of several models: `samples`, in the order of the models.

    `words`: for each model and text, the indices of the tokens of the sampled word.
    """

    samples: Sequence[TextSample]
    words: Sequence[Sequence[Integers]]


def draw_shared_sample(
    texts: Iterable[str], packers: Sequence[Packer], *, count: int, shortest: int, rng: np.random.Generator
) -> SharedSample:
    """Return at most `count` of some texts as each model reads them; if a text does not fit, a random part.

    A text is left out, and counted as short, if it has fewer than `shortest` tokens for one of the models, special
    pieces included, or if no word is read whole by all of them.
    """
    drawn, read = draw(texts, count, rng)
    examples: list[list[Example]] = [[] for _ in packers]
    words: list[list[Integers]] = [[] for _ in packers]
    cut = [0] * len(packers)
    for text in drawn:
        part = _fitting_part(text, packers[0], rng)
        layouts = [word_tokens(part, packer) for packer in packers]
        # Words are identified by their characters, so they agree between tokenizers.
        shared = sorted(set.intersection(*({*tokens} for _, tokens in layouts)))
        if not shared or min(len(example) for example, _ in layouts) < shortest:
            continue
        drawn_word = shared[int(rng.integers(len(shared)))]
        for number, (example, tokens) in enumerate(layouts):
            cut[number] += len(part) < len(text) or example.truncated > 0
            examples[number].append(example)
            words[number].append(tokens[drawn_word])
    samples = [
        TextSample(examples=model_examples, read=read, short=len(drawn) - len(model_examples), cut=parts)
        for model_examples, parts in zip(examples, cut, strict=True)
    ]
    return SharedSample(samples=samples, words=words)


def word_tokens(text: str, packer: Packer) -> tuple[Example, dict[tuple[int, int], Integers]]:
    """Return a text as one sequence, cut at its end if too long, and the tokens of each word that is read whole.

    The key of a word is (start, end) in the text.
    """
    pieces = packer.tokenizer.encode_with_offsets(text)
    example = packer.single(*PieceRun.of(pieces.ids, packer.tokenizer))
    bounds, word_of = words_of_pieces(text, pieces.starts, pieces.ends)
    room = len(pieces) - example.truncated
    begin = len(packer.form.before)
    # Words with a piece beyond the cut are not read whole.
    partly = {*word_of[room:].tolist()}
    tokens: dict[tuple[int, int], Integers] = {
        bounds[word]: np.flatnonzero(word_of[:room] == word) + begin
        for word in np.unique(word_of[:room]).tolist()
        if word not in partly
    }
    return example, tokens


def word_states(states: Sequence[Tensor], tokens: Integers) -> Floats:
    """Return the state (L + 1, D) of a word in each layer, the mean of its pieces. `states`: (T, D) each."""
    return np.array([state[tokens].float().mean(dim=0).cpu().numpy() for state in states])


def _fitting_part(text: str, packer: Packer, rng: np.random.Generator) -> str:
    """Return a part of a text from a random word on; it fills one sequence if the text is long enough."""
    part = random_part(text, packer.length * CHARACTERS, rng)
    pieces = packer.tokenizer.encode_with_offsets(part)
    if (over := len(pieces) - packer.room(1)) <= 0:
        return part
    begins = np.flatnonzero(PieceRun.of(pieces.ids, packer.tokenizer).words[: over + 1])
    return part[int(pieces.starts[rng.choice(begins)]) :] if len(begins) else part
