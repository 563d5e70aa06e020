"""The simple definition of the encoding of a text, with which that of a corpus is compared."""

from __future__ import annotations

import numpy as np

from osbert.text.document import Document
from osbert.text.file_tokenizer import AnyTokenizer
from osbert.text.sentences import split


def encode_document(text: str, tokenizer: AnyTokenizer) -> Document:
    """Return the pieces of a text as one document; a sentence without pieces (control characters alone) is left out.

    If pieces include the space before a word, every sentence but the first begins with a space if the text has one
    there. This is the simple definition of `encode_portion`, which handles many chunks at once.
    """
    encoded = []
    for number, (start, end) in enumerate(split(text)):
        space = tokenizer.spaced and number > 0 and text[start - 1].isspace()
        encoded.append(tokenizer.encode_bytes(" " * space + text[start:end]))
    lengths = [len(sentence) // tokenizer.id_type.itemsize for sentence in encoded if sentence]
    ids = np.frombuffer(b"".join(encoded), tokenizer.id_type).astype(np.int32)
    return Document(ids=ids, sentences=np.cumsum([0, *lengths], dtype=np.int64), words=~tokenizer.continuation[ids])
