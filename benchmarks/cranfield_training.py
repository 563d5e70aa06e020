"""Does contrastive training help a search? MiniLM on Cranfield, before and after training on half of the queries.

    python benchmarks/cranfield_training.py ../shared/data/retrieval/cranfield out [minilm [SPLADE]]

Every other query trains, the rest is searched for. `pairs` learns from the queries and the documents judged for them,
`mined` also from two hard negatives each that `osbert mine` finds by MiniLM and BM25; a reranker of these rows orders
the first 20 documents of the best encoder anew. `late-pairs` are many vectors a text (ColBERT) from MiniLM and the
pairs. With the folder of a SPLADE model, that learns from the pairs, too. Three seeds each. It prints a row each, and
then the gain of the mean over seeds with its interval over queries. A folder or ranking of `out` that is there already
is not made again.
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path

import numpy as np

import osbert
from osbert.runs.similarity.retrieval import RetrievalInput
from osbert_lab.hard_negatives import MiningOptions, mine_negatives

SEEDS = range(3)
SETTINGS = {"epochs": 2, "batch": 32, "length": 128, "learning_rate": 2e-5, "micro_tokens": 16384}
SPARSE = {**SETTINGS, "learning_rate": 1e-4, "pooling": "splade"}
LATE = {**SETTINGS, "learning_rate": 1e-4, "pooling": "colbert"}
RERANKING = {"length": 128, "candidates": 6}
RERANKED = 20
MEASURES = ("ndcg@10", "map", "recall@10", "recall@100")


class Cranfield:
    """The two halves, and the measures of every system by query."""

    def __init__(self, data: Path, out: Path) -> None:
        """Read the collection."""
        with lzma.open(data / "corpus.jsonl.xz", "rt", encoding="utf-8") as file:
            self.corpus = {row["_id"]: f"{row['title']} {row['text']}".strip() for row in map(json.loads, file)}
        lines = (data / "queries.jsonl").open(encoding="utf-8")
        self.queries = {row["_id"]: row["text"] for row in map(json.loads, lines)}
        order = sorted(self.queries, key=int)
        self.halves = {"train": {*order[::2]}, "test": {*order[1::2]}}
        self.qrels: dict[str, dict[str, dict[str, int]]] = {half: {} for half in self.halves}
        for line in (data / "qrels" / "test.tsv").read_text().splitlines()[1:]:
            query, document, grade = line.split("\t")
            (half,) = (name for name, chosen in self.halves.items() if query in chosen)
            self.qrels[half].setdefault(query, {})[document] = int(grade)
        self.out = out
        self.by_query: dict[str, dict[str, float]] = {}

    def half(self, name: str) -> dict[str, object]:
        """Return the corpus with the queries and judgements of a half."""
        queries = {query: self.queries[query] for query in self.halves[name]}
        return {"corpus": self.corpus, "queries": queries, "qrels": self.qrels[name]}

    def measure(self, name: str, encoder: str | Path | None = None, **options: object) -> None:
        """Print the measures of an encoder (and of BM25, if `options` say so) or of rankings on the test half."""
        run = self.out / f"{name}.trec" if encoder else None
        if run and run.exists() and name != "before":
            encoder, run, options = None, None, {"results": {name: self.ranking(name)}}
        half = self.half("test") if encoder else {"qrels": self.qrels["test"]}
        for system in osbert.evaluate_retrieval(encoder, run=run, **half, **options).systems:
            values = [f"{system.measures[measure]:.4f}" for measure in MEASURES]
            low, high = system.intervals["ndcg@10"]
            called = "BM25" if system.name == "bm25" else name
            print(called, values[0], f"{low:.4f} to {high:.4f}", *values[1:], flush=True)
            self.by_query[called] = {query: row["ndcg@10"] for query, row in system.by_query.items()}

    def ranking(self, name: str) -> dict[str, dict[str, float]]:
        """Return the ranking of an encoder that was measured."""
        ranking: dict[str, dict[str, float]] = {}
        for line in (self.out / f"{name}.trec").read_text().splitlines():
            query, _, document, _, score, _ = line.split()
            ranking.setdefault(query, {})[document] = float(score)
        return ranking

    def compare(self, names: list[str], others: list[str]) -> None:
        """Print the mean gain in nDCG@10 of some systems over others, and its bootstrap interval over queries."""
        queries = sorted(self.by_query["before"])
        means = [
            np.mean([[self.by_query[name][query] for query in queries] for name in some], axis=0)
            for some in (names, others)
        ]
        gains = means[0] - means[1]
        drawn = np.random.default_rng(0).integers(0, len(gains), (10_000, len(gains)))
        low, high = np.percentile(gains[drawn].mean(axis=1), [2.5, 97.5])
        print(f"{names[0]}.. - {others[0]}..: {gains.mean():+.4f} ({low:+.4f} to {high:+.4f})", flush=True)


def rerank(cranfield: Cranfield, run: Path, encoder: str) -> dict[str, dict[str, float]]:
    """Return an encoder's ranking with its first documents in the order of a reranker."""
    model, rankings = osbert.load(run), cranfield.ranking(encoder)
    for query, scores in rankings.items():
        first = sorted(scores, key=lambda document: -scores[document])[:RERANKED]
        texts = [cranfield.corpus[document] or " " for document in first]
        [prediction] = model.predict([(cranfield.queries[query], *texts)])
        # Above all others, whose cosines are below 1.
        low = min(prediction.value)
        scores.update({document: 2 + value - low for document, value in zip(first, prediction.value)})
    return rankings


def main(data: Path, out: Path, model: str = "minilm", splade: str = "") -> None:
    """Train and measure."""
    out.mkdir(parents=True, exist_ok=True)
    cranfield = Cranfield(data, out)
    pairs = [
        {"query": cranfield.queries[query], "document": cranfield.corpus[document], "label": grade}
        for query, row in cranfield.qrels["train"].items()
        for document, grade in row.items()
        if cranfield.corpus[document]
    ]
    (out / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
    folder, options = osbert.load(model).folder, MiningOptions(negatives=2)
    if not (out / "mined.jsonl").exists():
        given = RetrievalInput(**cranfield.half("train"))
        print(*mine_negatives(given, model=folder, out=out / "mined.jsonl", options=options).lines(), sep="\n")

    def train(name: str, rows: str, settings: dict[str, object], task: str = "contrastive") -> list[str]:
        names = [f"{name}-{seed}" for seed in SEEDS]
        for seed, run in zip(SEEDS, names):
            if not (out / run / "model.safetensors").exists():
                osbert.finetune(
                    task, data=out / f"{rows}.jsonl", out=out / run, seed=seed, **{"model": model, **settings}
                )
            if task == "contrastive":
                cranfield.measure(run, out / run, bm25=False)
        return names

    cranfield.measure("before", model)
    names = {rows: train(rows, rows, SETTINGS) for rows in ("pairs", "mined")}
    names["late-pairs"] = train("late-pairs", "pairs", LATE)
    comparisons = [("pairs", "before"), ("mined", "before"), ("mined", "pairs"), ("late-pairs", "pairs")]
    if splade:
        cranfield.measure("sparse", splade, pooling="splade", length=SETTINGS["length"], bm25=False)
        names["sparse-pairs"] = train("sparse-pairs", "pairs", {**SPARSE, "model": splade})
        comparisons.append(("sparse-pairs", "sparse"))
    best = max(("pairs", "mined"), key=lambda rows: sum(sum(cranfield.by_query[name].values()) for name in names[rows]))
    names["reranked"] = []
    for first, reranker in zip(names[best], train("reranker", "mined", RERANKING, "rerank")):
        names["reranked"].append(f"{first}-reranked")
        cranfield.measure(names["reranked"][-1], results={"reranked": rerank(cranfield, out / reranker, first)})
    for system, other in [*comparisons, ("reranked", best)]:
        cranfield.compare(names[system], names.get(other, [other]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:5])
