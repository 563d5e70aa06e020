"""Texts -> a closed vocabulary of words: the most frequent words are pieces, all others become the unknown piece.

Words are those of BERT's basic tokenizer (normalize.py). word2vec, GloVe and ELMo use such vocabularies.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from osbert.errors import UserError
from osbert.text.file_tokenizer import NAMES, FileTokenizer
from osbert.text.train import check_settings
from osbert.text.train_file import BYTE_LEVEL


def learn_words(
    word_counts: Mapping[str, int], *, vocabulary: int = 30522, lowercase: bool = True, minimum: int = 2
) -> FileTokenizer:
    """Return a tokenizer of RoBERTa's special pieces and the most frequent words, by decreasing count.

    Words that occur fewer than `minimum` times have no piece. Raises UserError if there are no words or no room.

    >>> learnt = learn_words({"the": 5, "low": 2, "lower": 1}, vocabulary=100)
    >>> learnt.vocabulary[5:], learnt.tokens(learnt.encode("The lower"))
    (('the', 'low'), ['the', '<unk>'])
    """
    check_settings(vocabulary=vocabulary, alphabet=1, minimum=minimum)
    if not word_counts:
        raise UserError("There is no text to learn a vocabulary from: the input has no words.", code="no-data")
    ranked = sorted(word_counts.items(), key=lambda item: (-item[1], item[0]))
    words = [word for word, count in ranked if count >= minimum and not _broken(word)]
    return word_tokenizer(words[: vocabulary - len(BYTE_LEVEL)], lowercase=lowercase)


def word_tokenizer(words: Iterable[str], *, lowercase: bool, spaces: bool = False) -> FileTokenizer:
    """Return the tokenizer with RoBERTa's special pieces, followed by these words in order.

    `lowercase` also strips accents. `spaces`: split text at spaces only, without normalisation; by default as
    BERT's basic tokenizer. Repeated words and words that are special pieces are not checked.
    """
    pieces = [*BYTE_LEVEL, *words]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    normalizer = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": lowercase}
    cls, sep = ([BYTE_LEVEL[index], index] for index in (0, 2))
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, "content": piece, **plain} for index, piece in enumerate(BYTE_LEVEL)],
        "normalizer": None if spaces else {"type": "BertNormalizer", **normalizer},
        "pre_tokenizer": {"type": "WhitespaceSplit" if spaces else "BertPreTokenizer"},
        "post_processor": {
            "type": "RobertaProcessing", "sep": sep, "cls": cls, "trim_offsets": True, "add_prefix_space": False,
        },
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {piece: index for index, piece in enumerate(pieces)},
            "unk_token": BYTE_LEVEL[3],
        },
    }  # fmt: skip
    named = dict(zip(("cls", "pad", "sep", "unknown", "mask"), BYTE_LEVEL, strict=True))
    written = json.dumps(content, ensure_ascii=False)
    return FileTokenizer(written, specials={name: named[name] for name in NAMES})


def _broken(word: str) -> bool:
    """Return whether a word has half a surrogate pair, which UTF-8 cannot encode."""
    return any("\ud800" <= character <= "\udfff" for character in word)
