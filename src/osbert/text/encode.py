"""Text -> Document: split into sentences, each encoded, with the word starts noted."""

from __future__ import annotations

import numpy as np

from osbert.text.document import Document
from osbert.text.sentences import split
from osbert.text.tokenizer import Tokenizer


def encode_document(text: str, tokenizer: Tokenizer) -> Document:
    """Return the pieces of a text as one document; a sentence without pieces (control characters alone) is left out.

    The plain definition of what `corpus.encode.encode_portion` does to many chunks at once; tests hold the two equal.
    """
    encoded = [tokenizer.encode_bytes(text[start:end]) for start, end in split(text)]
    lengths = [len(sentence) // tokenizer.id_type.itemsize for sentence in encoded if sentence]
    ids = np.frombuffer(b"".join(encoded), tokenizer.id_type).astype(np.int32)
    return Document(ids=ids, sentences=np.cumsum([0, *lengths], dtype=np.int64), words=~tokenizer.continuation[ids])
