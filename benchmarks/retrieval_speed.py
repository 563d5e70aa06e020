"""Vectors of three kinds in the processor's seconds: osbert beside sentence-transformers and PyLate, one thread each.

    python benchmarks/retrieval_speed.py ../shared/data/retrieval/cranfield work DENSE SPARSE MULTI [--sides osbert,...]

DENSE, SPARSE and MULTI are folders: a sentence model (`minilm`), a SparseEncoder, and a MultiVectorEncoder, such as a
run of `osbert finetune contrastive --pooling colbert`. For each kind it measures

    encode   the vectors of 128 abstracts and 64 queries
    score    the similarities of 64 queries with 4,096 texts, the abstracts again and again; with 512 of many vectors
    search   the 10 best of these texts for each query
    index    an index of the vectors of these texts, many vectors alone (PLAID)
    search by index

Each side is a process with one thread; the figure is the median processor time of --rounds, after one that warms up.
Figures stay in the folder `work`, and --sides "" prints them: PyLate needs other versions of libraries, so that its
side is measured by another Python (--alone pylate multi), with a model of the same sizes in its own form. Vectors and
scores of sentence-transformers are compared with osbert's.
"""

from __future__ import annotations

import argparse
import json
import lzma
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("dense", "sparse", "multi")
TEXTS, QUERIES, TOP = 128, 64, 10
REPEATED = {"dense": 32, "sparse": 32, "multi": 4}
BATCH = 32
Work = Iterator[tuple[str, Callable[[], Any]]]
"""Actions by name; each returns what can be compared, or None. A later one uses the results of those before it."""


def read_texts(data: Path) -> tuple[list[str], list[str]]:
    """Return the first abstracts and queries."""
    with lzma.open(data / "corpus.jsonl.xz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file][: TEXTS + 10]
    texts = [f"{row['title']} {row['text']}".strip() for row in rows]
    queries = [json.loads(line)["text"] for line in (data / "queries.jsonl").read_text().splitlines()]
    return [text for text in texts if text][:TEXTS], queries[:QUERIES]


def osbert_work(kind: str, folder: str, texts: list[str], queries: list[str], work: Path) -> Work:
    """Yield the actions of osbert."""
    import osbert
    from osbert.data.multi_vectors import MultiVectors, maxsim
    from osbert.inference.multi_vectors.index import open_residual_index
    from osbert.inference.multi_vectors.nearest import NearestMultiRows
    from osbert.inference.vectors.nearest import NearestRows
    from osbert.inference.vectors.reading import open_vectors
    from osbert.inference.vectors.sparse import NearestSparseRows, stack_rows

    model = osbert.load(folder)
    nearest: Any = {"dense": NearestRows, "sparse": NearestSparseRows, "multi": NearestMultiRows}[kind]
    stack: Any = {"dense": np.concatenate, "sparse": stack_rows, "multi": MultiVectors.stack}[kind]
    vectors: list[Any] = []

    def encode() -> Any:
        vectors[:] = model.embed(texts, role="document"), model.embed(queries, role="query")
        return vectors[0][0].toarray() if kind == "sparse" else vectors[0][0]

    def search() -> Any:
        rows = nearest(vectors[1], TOP)
        rows.compare(corpus)
        return None

    yield "encode", encode
    corpus = stack([vectors[0]] * REPEATED[kind])
    scores: dict[str, Callable[[], Any]] = {
        "dense": lambda: vectors[1] @ corpus.T,
        "sparse": lambda: (vectors[1] @ corpus.T).toarray(),
        "multi": lambda: maxsim(vectors[1], corpus),
    }
    yield "score", scores[kind]
    yield "search", search
    if kind == "multi":
        lines = work / "texts.txt"
        lines.write_text("".join(f"{' '.join(text.split())}\n" for text in texts * REPEATED[kind]))
        osbert.embed(folder, lines, out=work / "multi.npz", role="document")
        opened = open_vectors(work / "multi.npz")

        def index() -> None:
            (work / "multi.npz.plaid").unlink(missing_ok=True)
            vectors[2:] = [open_residual_index(opened, "plaid", lambda line: None)]

        yield "index", index
        yield "search by index", lambda: vectors[2].find(vectors[1], TOP) and None


def their_work(kind: str, folder: str, texts: list[str], queries: list[str], work: Path) -> Work:
    """Yield the actions of sentence-transformers."""
    import sentence_transformers
    import torch

    names = {"dense": "SentenceTransformer", "sparse": "SparseEncoder", "multi": "MultiVectorEncoder"}
    model = getattr(sentence_transformers, names[kind])(folder, device="cpu")
    more = {"convert_to_tensor": True} if kind != "multi" else {}
    vectors: list[Any] = []

    def encode() -> Any:
        vectors[:] = [
            model.encode_document(texts, batch_size=BATCH, show_progress_bar=False, **more),
            model.encode_query(queries, batch_size=BATCH, show_progress_bar=False, **more),
        ]
        return (vectors[0][0].to_dense() if kind == "sparse" else vectors[0][0]).numpy()

    def score() -> Any:
        scores = model.similarity(vectors[1], corpus)
        return (scores.to_dense() if scores.is_sparse else scores).numpy()

    yield "encode", encode
    corpus = vectors[0] * REPEATED[kind] if kind == "multi" else torch.cat([vectors[0]] * REPEATED[kind])
    yield "score", score
    if kind == "dense":
        yield "search", lambda: sentence_transformers.util.semantic_search(vectors[1], corpus, top_k=TOP) and None
    else:
        yield "search", lambda: torch.from_numpy(score()).topk(TOP) and None


def pylate_work(kind: str, folder: str, texts: list[str], queries: list[str], work: Path) -> Work:
    """Yield the actions of PyLate, for many vectors alone."""
    if kind != "multi":
        return
    from pylate import indexes, models, retrieve, scores

    model = models.ColBERT(folder, device="cpu")
    vectors: list[Any] = []

    def encode() -> None:
        options = {"batch_size": BATCH, "show_progress_bar": False}
        vectors[:] = [
            model.encode(texts, is_query=False, **options),
            model.encode(queries, is_query=True, **options),
        ]

    def score() -> None:
        import torch
        from torch.nn.utils.rnn import pad_sequence

        documents = pad_sequence([torch.from_numpy(row) for row in corpus], batch_first=True)
        mask = pad_sequence([torch.ones(len(row)) for row in corpus], batch_first=True)
        asked = torch.from_numpy(np.stack(vectors[1]))
        for query in asked:  # all at once would take 64 times the memory
            scores.colbert_scores(query[None], documents, documents_mask=mask)

    def index() -> None:
        options: Any = {"override": True, "device": "cpu", "show_progress": False}
        built = indexes.PLAID(str(work / "pylate"), index_name="index", **options)
        built.add_documents([str(number) for number in range(len(corpus))], corpus)
        vectors[2:] = [retrieve.ColBERT(index=built)]

    yield "encode", encode
    corpus = vectors[0] * REPEATED[kind]
    yield "score", score
    yield "index", index
    yield "search by index", lambda: vectors[2].retrieve(vectors[1], k=TOP) and None


WORKERS = {"osbert": osbert_work, "sentence-transformers": their_work, "pylate": pylate_work}


def measure(side: str, kind: str, options: argparse.Namespace) -> None:
    """Write the seconds of each action of a side, and what it returned last."""
    import torch

    torch.set_num_threads(1)
    texts, queries = read_texts(options.data)
    seconds, outcomes = {}, {}
    for name, action in WORKERS[side](kind, getattr(options, kind), texts, queries, options.work):
        taken = []
        for _ in range(options.rounds + 1):
            started = time.process_time()
            outcome = action()
            taken.append(time.process_time() - started)
        seconds[name] = statistics.median(taken[1:])
        if outcome is not None:
            outcomes[name] = outcome
    (options.work / f"{kind}-{side}.json").write_text(json.dumps(seconds))
    np.savez(options.work / f"{kind}-{side}.npz", **outcomes)


def main() -> None:
    """Measure the sides in a process each, and print all figures of the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    for kind in KINDS:
        parser.add_argument(kind)
    parser.add_argument("--sides", default="osbert,sentence-transformers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--alone", nargs=2, metavar=("SIDE", "KIND"), help="measure this alone, in this process")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.alone:
        measure(*options.alone, options)
        return
    for kind in KINDS:
        for side in filter(None, options.sides.split(",")):
            subprocess.run([sys.executable, *sys.argv, "--alone", side, kind], check=True)
        seconds = {
            side: json.loads(path.read_text())
            for side in WORKERS
            if (path := options.work / f"{kind}-{side}.json").exists()
        }
        ours, outcomes = seconds["osbert"], np.load(options.work / f"{kind}-osbert.npz")
        for side, actions in seconds.items():
            others = np.load(options.work / f"{kind}-{side}.npz")
            for name, taken in actions.items():
                ratio = f"{taken / ours[name]:5.2f} times" if name in ours and side != "osbert" else ""
                apart = f"apart {abs(outcomes[name] - others[name]).max():.1e}" if name in others else ""
                print(f"{kind:7s}{name:17s}{side:23s}{taken:9.3f} s  {ratio} {apart}", flush=True)


if __name__ == "__main__":
    main()
