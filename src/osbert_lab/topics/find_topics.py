"""Topics of texts: clusters of their vectors, the words of each, and a folder with a page and two tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from osbert.errors import UserError
from osbert.files import require_folder, require_free, whole_folder
from osbert.inference.vectors.nearest import pair_cosines
from osbert.inference.vectors.reading import VectorFile
from osbert.inference.vectors.settings import normalize_vectors
from osbert.lock import claim
from osbert.runs.contract import Watch, WorkProgress, ignore
from osbert.runs.rows.table import write_values
from osbert_lab.topics.clusters import BLOCK, assign_blocks, choose_count, cluster, score_counts
from osbert_lab.topics.report import topics_report
from osbert_lab.topics.result import Topic, TopicTally, TopicText
from osbert_lab.topics.words import topic_words
from osbert_lab.vector_input import VectorInput

TYPICAL = 5
"""Number of typical texts shown for a topic."""
FEWEST = 4
"""Fewest texts for choosing the number of topics."""
Numbers = NDArray[np.int64]
Vectors = NDArray[np.float32]


def find_topics(given: VectorInput, *, out: Path, topics: int = 0, seed: int = 0, watch: Watch = ignore) -> TopicTally:
    """Cluster texts by their vectors into `topics` topics; 0: the number that `choose_count` returns.

    The folder `out` gets rows.csv (the topic of each text and the cosine with its centre), topics.csv and report.html.
    Topics are numbered from 1, the largest first. Memory holds 65,536 vectors, some blocks, and the words. Raises
    UserError for data that cannot be read, and for more topics than texts.
    """
    if topics < 0 or topics == 1:
        raise UserError(f"--topics must be 2 or more, or 0 to choose it: not {topics}.", code="invalid-value")
    if seed < 0:
        raise UserError(f"--seed must be 0 or more, not {seed}.", code="invalid-value")
    require_folder(out)
    require_free(out)
    with given.open(watch) as (opened, vectors), claim(out) as claimed:
        if topics > len(vectors):
            raise UserError(
                f"There are {len(vectors):,} texts: they do not fall into {topics:,} topics. Give a smaller --topics.",
                code="too-little-data",
            )
        silhouettes = {} if topics else _silhouettes(vectors, given.name, seed, watch)
        count = topics or choose_count(silhouettes, len(vectors))
        labels, centres = _by_size(vectors, cluster(vectors, count, seed=seed))
        cosines = _cosines(vectors, labels, centres)
        with whole_folder(claimed) as folder:
            _write_rows(folder / "rows.csv", opened, labels, cosines)
            tally = TopicTally(
                folder=out,
                rows=len(vectors),
                topics=_describe_topics(opened, labels, cosines),
                silhouettes=silhouettes,
                wanted=topics,
            )
            _write_topics(folder / "topics.csv", tally)
            topics_report(folder / "report.html", tally, name=given.name)
    return tally


def _silhouettes(vectors: Vectors, name: str, seed: int, watch: Watch) -> dict[int, float]:
    if len(vectors) < FEWEST:
        raise UserError(
            f"{name} has {len(vectors)} texts, too few to choose a number of topics: give --topics.",
            code="too-little-data",
        )
    return score_counts(
        vectors, seed=seed, watch=lambda done, count: watch(WorkProgress(of="topic", done=done, count=count))
    )


def _by_size(vectors: Vectors, centres: Vectors) -> tuple[Numbers, Vectors]:
    """Return the topic of each vector and the centres, the largest topic first, without empty topics."""
    labels = np.concatenate([block for block, _ in assign_blocks(vectors, centres)])
    sizes = np.bincount(labels, minlength=len(centres))
    order = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)]
    # The inverse of the permutation `order`: old label -> rank by size.
    ranks = np.empty(len(centres), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks[labels], centres[order]


def _cosines(vectors: Vectors, labels: Numbers, centres: Vectors) -> Vectors:
    """Return the cosine of each vector with the centre of its topic, (n,)."""
    directions = normalize_vectors(centres)
    cosines = np.empty(len(vectors), np.float32)
    for first in range(0, len(vectors), BLOCK):
        block = np.asarray(vectors[first : first + BLOCK])
        cosines[first : first + BLOCK] = pair_cosines(
            directions, labels[first : first + BLOCK], block, np.arange(len(block))
        )
    return cosines


def _describe_topics(opened: VectorFile, labels: Numbers, cosines: Vectors) -> list[Topic]:
    """Return the topics with their words and typical texts; equal texts are named once."""
    sizes = np.bincount(labels)
    spelt = ((topic, " ".join(row.texts)) for topic, row in zip(labels.tolist(), opened.all_rows(), strict=True))
    topics = []
    for number, words in enumerate(topic_words(spelt, len(sizes))):
        members = np.flatnonzero(labels == number)
        near = members[np.argsort(-cosines[members], kind="stable")[: 4 * TYPICAL]].tolist()
        # In reverse, so that of equal texts the nearest one, which comes last, is kept.
        once = {row.texts: (row, index) for row, index in reversed(list(zip(opened.rows(near), near, strict=True)))}
        typical_rows = sorted(once.values(), key=lambda pair: near.index(pair[1]))[:TYPICAL]
        texts = [TopicText(line=row.line, cosine=float(cosines[index]), texts=row.texts) for row, index in typical_rows]
        topics.append(Topic(number=number + 1, size=int(sizes[number]), words=words, texts=texts))
    return topics


def _write_rows(path: Path, opened: VectorFile, labels: Numbers, cosines: Vectors) -> None:
    rows = zip(opened.all_rows(), labels.tolist(), cosines.tolist(), strict=True)
    values = ([row.line, label + 1, round(cosine, 6), *row.texts] for row, label, cosine in rows)
    write_values(path, ["line", "topic", "cosine", *opened.text_names], values)


def _write_topics(path: Path, tally: TopicTally) -> None:
    rows = []
    for topic in tally.topics:
        texts = [" | ".join(text.texts) for text in topic.texts]
        words = ", ".join(word for word, _ in topic.words)
        rows.append([topic.number, topic.size, words, *texts, *[""] * (TYPICAL - len(texts))])
    write_values(path, ["topic", "size", "words", *(f"text_{number}" for number in range(1, TYPICAL + 1))], rows)
