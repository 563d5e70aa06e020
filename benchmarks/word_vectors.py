"""word2vec beside gensim: words a second of processor time on the same corpus and settings, and the vectors' quality.

One thread or process each, in turns. osbert's time is that of the whole run: reading, checkpoints and the model
included; gensim's is that of train() alone, on sentences in memory.

    python benchmarks/word_vectors.py CORPUS [--epochs 3] [--width 100] [--words FOLDER] [--methods skip-gram,cbow]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import osbert
from osbert.corpus.shards import Corpus
from osbert.interop.folder import open_folder
from osbert.interop.tokenizers import read_any_tokenizer
from osbert.text.train_file import BYTE_LEVEL
from osbert_lab.papers.word_similarity import WordTable, read_pairs, read_questions

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
RATES = {"skip-gram": 0.025, "cbow": 0.05}


def documents(folder: Path) -> list[list[str]]:
    """Return the words of each document, without special pieces."""
    corpus, vocabulary = Corpus.open(folder), np.array(read_any_tokenizer(folder).vocabulary, object)
    found = []
    for block in corpus.blocks():
        for document in corpus.read(block):
            found.append(vocabulary[document.ids[document.ids >= len(BYTE_LEVEL)]].tolist())
    return found


def ours(corpus: Path, method: str, given: argparse.Namespace) -> tuple[float, WordTable]:
    with tempfile.TemporaryDirectory() as scratch:
        run, begun = Path(scratch) / "run", time.process_time()
        osbert.pretrain(
            "word2vec", corpus=corpus, out=run, method=method, learning_rate=RATES[method], epochs=given.epochs,
            width=given.width, workers=1,
        )  # fmt: skip
        seconds, folder = time.process_time() - begun, open_folder(run)
        table = folder.backbone.embedding.weight.detach().numpy()
        return seconds, WordTable(folder.tokenizer.vocabulary, table)


def theirs(texts: Sequence[Sequence[str]], method: str, given: argparse.Namespace) -> tuple[float, WordTable]:
    from gensim.models import Word2Vec

    model = Word2Vec(
        vector_size=given.width, window=5, min_count=1, negative=5, sample=1e-3, sg=int(method == "skip-gram"),
        alpha=RATES[method], workers=1,
    )  # fmt: skip
    model.build_vocab(texts)
    begun = time.process_time()
    model.train(texts, total_examples=model.corpus_count, epochs=given.epochs)
    return time.process_time() - begun, WordTable(model.wv.index_to_key, model.wv.vectors)


def scores(table: WordTable, words: Path) -> str:
    pairs = {"WordSim-353": "wordsim353-combined.csv", "SimLex-999": "SimLex-999-half.txt"}
    found = [f"{name} {table.similarity(read_pairs(words / file))}" for name, file in pairs.items()]
    sections = read_questions(words / "questions-words-part.txt")
    for name, grammar in (("semantic", False), ("syntactic", True)):
        questions = [one for section, rows in sections.items() if section.startswith("gram") is grammar for one in rows]
        found.append(f"{name} analogies {table.analogies(questions)}")
    return ", ".join(found)


def main() -> None:
    """Measure both sides."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("--words", type=Path, default=DATA / "words")
    parser.add_argument("--methods", default="skip-gram,cbow")
    given = parser.parse_args()
    texts = documents(given.corpus)
    read = given.epochs * sum(map(len, texts))
    for method in given.methods.split(","):
        rates = []
        for name, (seconds, table) in (
            ("osbert", ours(given.corpus, method, given)),
            ("gensim", theirs(texts, method, given)),
        ):
            rates.append(read / seconds)
            print(f"{method} {name}: {rates[-1]:,.0f} words a second; {scores(table, given.words)}", flush=True)
        print(f"{method}: {rates[0] / rates[1]:.2f} of gensim's words a second", flush=True)


if __name__ == "__main__":
    main()
