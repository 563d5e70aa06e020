"""The attention of one text or a pair: the weights of every head, by piece and by word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from osbert.analysis.attention_packing import MEGABYTES, pack_attention
from osbert.analysis.words import words_of_pieces
from osbert.data.example import Example, Integers
from osbert.data.pack import Packer, PieceRun, trim_lengths
from osbert.errors import UserError
from osbert.evaluation import forward
from osbert.files import require_file
from osbert.models.contract import Backbone
from osbert.reports.attention_page import write_attention

Maps = NDArray[np.float32]
"""Attention (..., T, T), or by word (..., W, W). The rows are the queries."""


TextPieces = tuple[Integers, Integers, Integers]
"""The ids (n,) of the pieces of a text, and where the characters of each start and end (n,)."""


@dataclass(frozen=True, kw_only=True)
class PlacedText:
    """One text or a pair as the model reads it, T tokens, with the position of each token in the texts.

    `words` (W): the words as written; a special piece is a word of its own. `word_of` (T,): the word of each token.
    `offsets` (T, 2): where the characters of each token begin and end in text number `text_of` (T,), which is -1 for
    special pieces.
    """

    texts: tuple[str, ...]
    example: Example
    pieces: tuple[str, ...]
    words: tuple[str, ...]
    word_of: NDArray[np.int64]
    offsets: NDArray[np.int64]
    text_of: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class TextAttention:
    """The attention of the L layers with H heads of a model in a text of T tokens and W words.

    `weights` (L, H, T, T): the attention weights; rows are queries and sum to 1. `norms` (L, H, T): the norm of the
    vector f(x) that each head adds for each key: the value, bias included, times the head's part of the output matrix
    (Kobayashi et al. 2020). `queries`, `keys` (L, H, T, K): the vectors whose products are the logits. `is_biased`:
    whether something is added to these products, such as a score of the distance. `notes`: limits of the text and the
    model, for readers.
    """

    name: str
    placed: PlacedText
    weights: Maps
    norms: NDArray[np.float32]
    queries: NDArray[np.float32]
    keys: NDArray[np.float32]
    is_biased: bool
    notes: tuple[str, ...] = ()

    @property
    def pieces(self) -> tuple[str, ...]:
        """Return the pieces (T) that the model read, special ones included."""
        return self.placed.pieces

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words (W), in their order; a special piece is one."""
        return self.placed.words

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Return the characters (T, 2) from and to of each piece in its text; (0, 0) for special pieces."""
        return self.placed.offsets

    def weight_by_norms(self) -> Maps:
        """Return |a f(x)| (L, H, T, T), the weights times the norms (Kobayashi et al. 2020, section 3).

        The norm of a sum is not the sum of the norms: to read a row as fractions is a convention.
        """
        return self.weights * self.norms[:, :, None, :]

    def rollout(self) -> Maps:
        """Return the attention rollout (L, T, T): how much of each input token is in each token of each layer.

        Abnar and Zuidema 2020, section 3: A = (mean over the heads + I) / 2, and R of a layer is A times R of the layer
        below. Rows sum to 1.
        """
        # The identity stands for the residual connection.
        means: Maps = (self.weights.mean(axis=1) + np.eye(len(self.pieces), dtype=np.float32)) / np.float32(2)
        rollouts = [means[0]]
        for mean in means[1:]:
            rollouts.append(mean @ rollouts[-1])
        return np.stack(rollouts)

    def by_word(self, maps: Maps) -> Maps:
        """Return maps (..., T, T) as (..., W, W): the sum over a word's pieces as keys, the mean as queries."""
        # The tokens of a word are adjacent, so reduceat sums each run that begins at `firsts`.
        firsts = np.flatnonzero(np.diff(self.placed.word_of, prepend=-1))
        keys = np.add.reduceat(maps, firsts, axis=-1)
        sizes = np.diff(firsts, append=len(self.placed.word_of)).astype(np.float32)
        word_maps: Maps = np.add.reduceat(keys, firsts, axis=-2)
        # A row then sums to 1 again: it is the mean distribution of the pieces of the word.
        word_maps /= sizes[:, None]
        return word_maps

    def record(self, *, megabytes: float = MEGABYTES) -> dict[str, Any]:
        """Return the data of the page, ready for JSON, in at most about `megabytes`."""
        placed = self.placed
        about = {
            "name": self.name,
            "texts": list(placed.texts),
            "pieces": list(placed.pieces),
            "words": list(placed.words),
            "wordOf": placed.word_of.tolist(),
            "textOf": placed.text_of.tolist(),
            "notes": list(self.notes),
            "biased": self.is_biased,
        }
        # (L, H + 1, T, T): the page shows the rollout as one more head of each layer.
        maps = np.concatenate([self.weights, self.rollout()[:, None]], axis=1)
        return about | pack_attention(maps, self.norms, (self.queries, self.keys), megabytes=megabytes)

    def save(self, path: str | Path, *, megabytes: float = MEGABYTES) -> Path:
        """Write one self-contained HTML file of at most `megabytes`, and return the path.

        For a long text the weights are stored with fewer levels to fit; the page states the precision of every figure.
        """
        target = Path(path)
        require_file(target)
        if target.suffix.lower() != ".html":
            raise UserError(
                f"{target}: the output is an HTML page. Give a file name that ends in .html.",
                code="unknown-output-format",
            )
        if not megabytes > 0:
            raise UserError(f"megabytes must be above 0, not {megabytes:g}.", code="invalid-value")
        return write_attention(target, self.record(megabytes=megabytes), self.name)

    def lines(self) -> Iterator[str]:
        """Yield the sizes and the notes, as lines of text."""
        layers, heads, tokens, _ = self.weights.shape
        yield f"{layers} layers of {heads} heads, {tokens} tokens, {len(self.words)} words"
        yield from self.notes


def place_text(texts: Sequence[str], packer: Packer, given: Sequence[TextPieces]) -> PlacedText:
    """Return one text or a pair of texts as one sequence. Pieces that do not fit are cut off and counted."""
    runs = [PieceRun.of(ids, packer.tokenizer) for ids, _, _ in given]
    if len(runs) == 2:
        example = packer.pair(*runs)
        # Pieces that the packer keeps of each text of a pair: the longer one is cut first.
        sizes = [
            int(size) for size in trim_lengths(np.array(len(runs[0].ids)), np.array(len(runs[1].ids)), packer.room(2))
        ]
    else:
        example = packer.single(*runs[0])
        sizes = [int((~example.special).sum())]
    offsets, text_of = np.zeros((len(example), 2), np.int64), np.full(len(example), -1)
    # Word numbers in order of appearance; -1 marks special pieces until _in_order gives them words of their own.
    number = np.full(len(example), -1)
    token_indices = np.flatnonzero(~example.special)
    words: list[str] = []
    begin = 0
    for text_index, (text, (_, starts, ends), size) in enumerate(zip(texts, given, sizes, strict=True)):
        here = token_indices[begin : begin + size]
        starts, ends = starts[:size], ends[:size]
        bounds, word = words_of_pieces(text, starts, ends)
        offsets[here, 0], offsets[here, 1], text_of[here] = starts, ends, text_index
        # Words of the second text are numbered after those of the first.
        number[here] = len(words) + word
        words += [text[start:end] for start, end in bounds]
        begin += size
    tokens = tuple(packer.tokenizer.tokens(example.ids))
    word_of, named = _in_order(number, tokens, words)
    return PlacedText(
        texts=tuple(texts), example=example, pieces=tokens, words=named, word_of=word_of, offsets=offsets,
        text_of=text_of,
    )  # fmt: skip


def _in_order(
    number: NDArray[np.int64], pieces: Sequence[str], words: Sequence[str]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Number the words of tokens from 0 (T,), each special piece as a word of its own, and return their names.

    >>> _in_order(np.array([-1, 3, 3, -1]), ["[CLS]", "so", "##fa", "[SEP]"], ["", "", "", "sofa"])
    (array([0, 1, 1, 2]), ('[CLS]', 'sofa', '[SEP]'))
    """
    # A word begins wherever the number changes, and each special piece (-1) begins one, even after another.
    begins = (np.diff(number, prepend=-2) != 0) | (number < 0)
    firsts = np.flatnonzero(begins).tolist()
    named = tuple(pieces[first] if number[first] < 0 else words[int(number[first])] for first in firsts)
    return np.cumsum(begins) - 1, named


def read_attention(backbone: Backbone, placed: PlacedText, name: str) -> TextAttention:
    """Return the attention of a model in a text. Raises UserError if its family has no attention."""
    if not backbone.attends:
        raise UserError(
            f"{name} has no attention: it is a model of the family {backbone.architecture.family}. Look at its "
            "states instead.",
            code="unsupported-model",
        )
    with forward.evaluating(backbone) as device:
        # One batch: the budget of tokens is exactly the length of the example.
        [batch] = forward.batches([placed.example], tokens=len(placed.example))
        device_batch = batch.to(device)
        states = list(backbone.layers(device_batch))
        weights = [attention for [attention] in backbone.weights(device_batch, states)]
        vectors = list(backbone.head_vectors(device_batch, states))
        # f(x) = x W_v W_o of each head (Kobayashi et al. 2020): (T, H, K) and (H, K, D) -> (H, T, D), then its norm.
        norms = [
            torch.einsum("thk,hkd->htd", layer.values.float(), layer.outputs.float()).norm(dim=-1) for layer in vectors
        ]
    sizes, notes = backbone.architecture, []
    if cut := placed.example.truncated:
        notes.append(f"The last {cut:,} pieces did not fit into {sizes.length:,} tokens and were not read.")
    if sizes.direction == "left_to_right":
        notes.append("A token sees only what is before it, so much attention goes to the first token.")
    if sizes.window:
        notes.append(
            f"Some layers are local: their tokens see {sizes.window:,} positions to either side, and nothing else has "
            "a weight."
        )
    return TextAttention(
        name=name,
        placed=placed,
        weights=_stack_layers(weights),
        norms=_stack_layers(norms),
        queries=_stack_layers([layer.queries.transpose(0, 1) for layer in vectors]),
        keys=_stack_layers([layer.keys.transpose(0, 1) for layer in vectors]),
        is_biased=any(layer.is_biased for layer in vectors),
        notes=tuple(notes),
    )


def _stack_layers(layers: Sequence[Tensor]) -> Maps:
    return torch.stack([*layers]).float().cpu().numpy()
