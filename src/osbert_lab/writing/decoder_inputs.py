"""Decoder inputs and labels for a text that an encoder-decoder generates from a source (teacher forcing). No torch.

The text has its special pieces, so that the end piece is predicted too. The decoder's input is a starting piece and the
text without its last piece; the label at each token is the next piece.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from osbert.data.example import Example
from osbert.data.examples import Examples, Targets
from osbert.text.file_tokenizer import AnyTokenizer, starting_piece


def decoder_prompt(source: Example, tokenizer: AnyTokenizer, *, whole: bool = False) -> Example:
    """Return the decoder's input before the first generated piece: the starting piece, with its source.

    `whole`: also the special pieces before a text, for decoders that were trained to generate these.
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


def decoder_example(source: Example, text: Example, tokenizer: AnyTokenizer, *, name: str) -> Example:
    """Return the example of a decoder that generates `text` from `source`; both come from a Packer.

    Its tokens are the decoder's input, and its target `name` has the next piece as the label of each. The record is
    that of `text`; `truncated` is the sum of both.
    """
    return decoder_examples(Examples.of([source]), Examples.of([text]), starting_piece(tokenizer), name=name)[0]


def decoder_examples(sources: Examples, texts: Examples, start: int, *, name: str) -> Examples:
    """Return the examples that generate each of `texts` from the source with the same index; see `decoder_example`."""
    ids, special = np.empty_like(texts.ids), np.empty_like(texts.special)
    # Shift all texts at once by one token; the first token of each then gets the starting piece instead of the end of
    # the text before it.
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
