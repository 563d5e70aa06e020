"""Corpora of invented words, for tests that pretrain in seconds."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import osbert
from osbert.corpus.build import Build
from osbert.corpus.shards import Corpus
from osbert.corpus.state import BuildSettings
from osbert.interop.tokenizers import write_any_tokenizer
from osbert.reading.documents import DocumentOptions
from osbert.text.file_tokenizer import AnyTokenizer


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the content of a corpus's files, with the times taken out of corpus.json."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    manifest = json.loads(found.pop("corpus.json"))
    del manifest["report"]["seconds"], manifest["report"]["megabytes_per_second"]
    return {**found, "corpus.json": json.dumps(manifest).encode()}


def build_corpus(folder: Path, documents: Sequence[str], tokenizer: AnyTokenizer, **settings: Any) -> Path:
    """Return the folder of a corpus of documents without line breaks, in `folder` beside their text."""
    folder.mkdir(exist_ok=True)
    source = folder / "source.txt"
    source.write_text("\n".join(documents) + "\n", encoding="utf-8")
    asked = BuildSettings(reading=DocumentOptions(documents="line"), **settings)
    Build.prepare([source], tokenizer=tokenizer, folder=folder / "corpus", settings=asked).run()
    write_any_tokenizer(tokenizer, folder / "corpus")
    return folder / "corpus"


def opinions(documents: int = 60) -> list[str]:
    """Return documents of 5 sentences of 3 to 8 words, of 8 words in all: as many as a model of width 16 learns."""
    rng, words = random.Random(0), ["good", "bad", "film", "play", "actor", "the", "was", "and"]
    texts = ([" ".join(rng.choices(words, k=rng.randint(3, 8))) for _ in range(5)] for _ in range(documents))
    return [". ".join(sentences) + "." for sentences in texts]


def invented(*, seed: int = 0) -> list[str]:
    """Return 60 documents of 8 sentences, each on a topic: 12 of 48 words."""
    rng = random.Random(seed)
    beginnings, ends = ("ba", "ke", "lo", "mi", "nu", "pa", "ri", "so"), ("da", "fe", "gi", "ho", "ju", "la")
    words = [first + second for first in beginnings for second in ends]
    documents = []
    for _ in range(60):
        topic = rng.sample(words, 12)
        sentences = [" ".join(rng.choice(topic) for _ in range(rng.randint(4, 9))) for _ in range(8)]
        documents.append(" ".join(f"{sentence.capitalize()}." for sentence in sentences))
    return documents


def cats_and_dogs(folder: Path) -> Corpus:
    """Return a mixture: three quarters of "cat", which is a third of the text, and a quarter of "dog"."""
    texts = {name: folder / f"{name}.txt" for name in ("cat", "dog")}
    for (name, path), times in zip(texts.items(), (300, 600)):
        path.write_text(f"{name} {name} {name} {name} {name} {name}.\n\n" * times, encoding="utf-8")
    osbert.train_tokenizer([*texts.values()], out=folder / "vocabulary", vocabulary=40)
    for name, path in texts.items():
        osbert.build_corpus(path, tokenizer=folder / "vocabulary", out=folder / name, workers=1, shard_tokens=500)
    return osbert.mix_corpora([folder / "cat", folder / "dog"], weights=[3, 1], out=folder / "mixed")
