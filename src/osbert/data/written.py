"""Written texts: what a decoder reads and is to predict of a text that it writes from a source. No torch.

The text stands in its tokenizer's form, so that the piece that ends it is predicted too. The decoder reads a piece that
starts it, and then the text without its last piece: at each token it is to predict the next piece.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from osbert.data.example import Example
from osbert.data.examples import Examples, Targets
from osbert.text.file_tokenizer import AnyTokenizer


def starting_piece(tokenizer: AnyTokenizer) -> int:
    """Return the piece that a decoder reads first: as T5 the padding, or as BART the piece that ends a text.

    T5's texts have nothing before them (Raffel et al. 2020), and BART's begin with a piece of their own (Lewis et al.
    2020), which the decoder is then to predict.
    """
    form = tokenizer.form
    return form.after[-1] if form.before and form.after else tokenizer.pad


def started(source: Example, tokenizer: AnyTokenizer, *, whole: bool = False) -> Example:
    """Return what a decoder reads before it writes from a source: the starting piece.

    `whole`: and what stands before a text, for a decoder of texts in their tokenizer's form.
    """
    ids = np.array([starting_piece(tokenizer), *(tokenizer.form.before if whole else ())])
    special = np.ones(len(ids), np.bool_)
    return Example(
        ids=ids,
        segments=np.zeros(len(ids), np.int8),
        words=~special,
        special=special,
        source=source,
        record=source.record,
        truncated=source.truncated,
    )


def written(source: Example, text: Example, tokenizer: AnyTokenizer, *, name: str) -> Example:
    """Return the example of a decoder that writes `text` from `source`, both as a Packer lays them out.

    Its tokens are what the decoder reads, and its target `name` has the piece to predict at each of them. The record is
    that of `text`, and `truncated` what did not fit of both.
    """
    return all_written(Examples.of([source]), Examples.of([text]), starting_piece(tokenizer), name=name)[0]


def all_written(sources: Examples, texts: Examples, start: int, *, name: str) -> Examples:
    """Return the examples of decoders that write each of `texts` from the source at its place; see `written`."""
    ids, special = np.empty_like(texts.ids), np.empty_like(texts.special)
    ids[1:], special[1:] = texts.ids[:-1], texts.special[:-1]
    ids[texts.starts], special[texts.starts] = start, True
    words = np.concatenate([[False], texts.words[:-1]])
    words[texts.starts] = False
    labels = Targets(labels=texts.ids, counts=texts.lengths, index=np.arange(len(texts.ids)))
    return replace(
        texts,
        ids=ids,
        words=words,
        special=special,
        truncated=sources.truncated + texts.truncated,
        source=replace(sources, targets={}),
        targets={name: labels},
    )
