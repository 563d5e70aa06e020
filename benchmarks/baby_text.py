"""Ten million words for the recipe `baby`: novels, film reviews and WikiText-2, without any sentence of BLiMP.

    python benchmarks/baby_text.py $DATA text.txt

$DATA has text/novels.tar.xz, text/reviews.jsonl.xz, text/wikitext2-train.txt.xz and blimp/blimp-half.tar.xz. Of each
novel the first words are taken, as many of each; of the reviews the first ones; all of WikiText-2, whose spaces around
punctuation are removed. Documents are shuffled, with a blank line between two. The script ends with an error if a
sentence of BLiMP is among them.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

NOVEL_WORDS = 51_000
"""Words of each novel."""
REVIEW_WORDS = 4_200_000
"""Words of all reviews."""
APART = ((" n't", "n't"), (" 's", "'s"), (" n 't", "n't"), (" ' s", "'s"))
"""Endings that WikiText-2 splits off."""
SENTENCE_END = re.compile(r"(?<=[.!?])[\"'\u201d\u2019)]*\s+")


def main() -> None:
    """Write the text and print how many words it has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    documents = [*novels(options.data / "text"), *reviews(options.data / "text"), *articles(options.data / "text")]
    random.Random(0).shuffle(documents)
    refuse_test_sentences(documents, set(minimal_pairs(options.data / "blimp" / "blimp-half.tar.xz")))
    options.out.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    print(f"{sum(map(count_words, documents)):,} words in {len(documents):,} documents")


def count_words(text: str) -> int:
    return len(text.split())


def novels(folder: Path) -> Iterator[str]:
    """Yield the beginning of each novel, a paragraph a line."""
    with tarfile.open(folder / "novels.tar.xz") as archive:
        for member in sorted((member for member in archive if member.isfile()), key=lambda member: member.name):
            text, paragraphs, words = archive.extractfile(member).read().decode(), [], 0
            for paragraph in filter(None, map(str.strip, text.split("\n"))):
                paragraphs.append(paragraph)
                words += count_words(paragraph)
                if words >= NOVEL_WORDS:
                    break
            yield "\n".join(paragraphs)


def reviews(folder: Path) -> Iterator[str]:
    """Yield reviews without HTML's line breaks."""
    words = 0
    with lzma.open(folder / "reviews.jsonl.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            review = " ".join(re.sub(r"<br ?/?>", " ", json.loads(line)["text"]).split())
            words += count_words(review)
            yield review
            if words >= REVIEW_WORDS:
                break


def articles(folder: Path) -> Iterator[str]:
    """Yield the articles of WikiText-2 without headings, as they were before their punctuation was split off."""
    paragraphs: list[str] = []
    for line in lzma.decompress((folder / "wikitext2-train.txt.xz").read_bytes()).decode().split("\n"):
        paragraph = line.strip()
        if re.fullmatch(r"= [^=].*[^=] =", paragraph):  # a title
            if paragraphs:
                yield "\n".join(paragraphs)
            paragraphs = []
        elif paragraph and not paragraph.startswith("="):
            joined = re.sub(r" @(.)@ ", r"\1", paragraph)
            joined = re.sub(r" ([,.;:!?)%])", r"\1", joined).replace("( ", "(")
            for apart, whole in APART:
                joined = joined.replace(apart, whole)
            paragraphs.append(joined)
    yield "\n".join(paragraphs)


def minimal_pairs(archive_path: Path) -> Iterator[str]:
    """Yield the sentences of BLiMP, acceptable or not."""
    with tarfile.open(archive_path) as archive:
        for member in filter(tarfile.TarInfo.isfile, archive):
            for line in filter(str.strip, archive.extractfile(member).read().decode().splitlines()):
                pair = json.loads(line)
                yield from (pair["sentence_good"], pair["sentence_bad"])


def refuse_test_sentences(documents: list[str], test_sentences: set[str]) -> None:
    """Exit with the sentences of a test that the documents contain, if any."""
    shared = {
        sentence.strip()
        for document in documents
        for line in document.split("\n")
        for sentence in SENTENCE_END.split(line)
        if sentence.strip() in test_sentences
    }
    if shared:
        raise SystemExit(f"These sentences are in BLiMP, too: {sorted(shared)}")


if __name__ == "__main__":
    main()
