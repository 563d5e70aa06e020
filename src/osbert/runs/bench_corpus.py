"""A synthetic corpus for measuring speed without text: words distributed by Zipf's law."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from osbert.corpus.build import Build
from osbert.corpus.shards import Corpus
from osbert.corpus.state import BuildSettings
from osbert.errors import UserError
from osbert.interop.tokenizers import write_tokenizer
from osbert.reading.documents import DocumentOptions
from osbert.text.tokenizer import SPECIALS, Tokenizer

TOKENS = 1_200_000
"""Words in the corpus: enough for one pool of the loader, and some to hold out."""
SENTENCE, DOCUMENT = (8, 40), (5, 40)
"""Fewest and most words of a sentence; fewest and most sentences of a document."""
SIGNS = "abcdefghijklmnopqrstuvwxyz"
FEWEST, MOST = len(SPECIALS) + 3, len(SPECIALS) + 1 + len(SIGNS) ** 4
"""Vocabulary sizes: special tokens, a full stop, and at least two words of four letters."""


def synthetic_corpus(
    folder: Path, *, vocabulary: int, tokens: int = TOKENS, padding: int = 0, document_sentences: int = 0
) -> Corpus:
    """Build a corpus in `folder` of about `tokens` tokens, with a tokenizer of exactly `vocabulary` pieces.

    `padding`: the id of its padding piece. `document_sentences`: of each document; 0 for random numbers of DOCUMENT.

    Word k has a probability of about 1 / (k + 2.7), as in text (Zipf; Mandelbrot's form). The same in every call.
    Raises UserError for a vocabulary that words of four letters cannot fill.
    """
    if not FEWEST <= vocabulary <= MOST:
        raise UserError(
            f"model.vocabulary is {vocabulary:,}, but made-up words need one from {FEWEST} to {MOST:,}. Leave it at 0, "
            "or give a --corpus.",
            code="invalid-value",
        )
    letters = itertools.islice(itertools.product(SIGNS, repeat=4), vocabulary - len(SPECIALS) - 1)
    words = np.array(["".join(four) for four in letters])
    pieces = [".", *words.tolist()]
    tokenizer = Tokenizer([*pieces[:padding], *SPECIALS, *pieces[padding:]])
    probabilities = 1 / (np.arange(len(words)) + 2.7)
    rng = np.random.Generator(np.random.PCG64(0))
    drawn = words[rng.choice(len(words), size=tokens, p=probabilities / probabilities.sum())]
    # More cuts than needed: one for each SENTENCE[0] words, the shortest sentence. Those past the end are dropped.
    cuts = np.cumsum(rng.integers(*SENTENCE, size=tokens // SENTENCE[0]))
    sentences = [" ".join(part) + "." for part in np.split(drawn, cuts[cuts < tokens])]
    ends = np.cumsum(rng.integers(*DOCUMENT, size=len(sentences)))
    if document_sentences:
        ends = np.arange(document_sentences, len(sentences), document_sentences)
    folder.mkdir(parents=True)
    source = folder / "words.txt"
    with source.open("w", encoding="utf-8") as file:
        for start, end in itertools.pairwise([0, *ends[ends < len(sentences)].tolist(), len(sentences)]):
            file.write(" ".join(sentences[start:end]) + "\n")
    settings = BuildSettings(reading=DocumentOptions(documents="line"))
    corpus = folder / "corpus"
    Build.prepare([source], tokenizer=tokenizer, folder=corpus, settings=settings).run()
    write_tokenizer(tokenizer, corpus)
    return Corpus.open(corpus)
