"""Does contrastive training help a search? MiniLM on Cranfield, before and after training on half of the queries.

    python benchmarks/cranfield_training.py ../shared/data/retrieval/cranfield out [minilm]

Every other query trains, the rest is searched for. `pairs` learns from the queries and the documents judged for them,
`mined` also from hard negatives that `osbert mine` finds by MiniLM and BM25; three seeds each. It prints a row each.
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path

import osbert
from osbert.runs.similarity.mine import MiningOptions, mine_negatives
from osbert.runs.similarity.retrieval import RetrievalInput

SETTINGS = {"epochs": 2, "batch": 32, "length": 128, "learning_rate": 2e-5, "micro_tokens": 8192}
MEASURES = ("ndcg@10", "map", "recall@10", "recall@100")


def main(data: Path, out: Path, model: str = "minilm") -> None:
    """Train and measure."""
    with lzma.open(data / "corpus.jsonl.xz", "rt", encoding="utf-8") as file:
        corpus = {row["_id"]: f"{row['title']} {row['text']}".strip() for row in map(json.loads, file)}
    queries = {row["_id"]: row["text"] for row in map(json.loads, (data / "queries.jsonl").open(encoding="utf-8"))}
    judged = [line.split("\t") for line in (data / "qrels" / "test.tsv").read_text().splitlines()[1:]]
    order = sorted(queries, key=int)
    halves = {"train": {*order[::2]}, "test": {*order[1::2]}}
    qrels: dict[str, dict[str, dict[str, int]]] = {half: {} for half in halves}
    for query, document, grade in judged:
        (half,) = (name for name, chosen in halves.items() if query in chosen)
        qrels[half].setdefault(query, {})[document] = int(grade)
    test = {"corpus": corpus, "queries": {q: queries[q] for q in halves["test"]}, "qrels": qrels["test"]}

    def measure(name: str, encoder: str | Path) -> None:
        for system in osbert.evaluate_retrieval(encoder, **test).systems[: 2 if encoder == model else 1]:
            values = [f"{system.measures[measure]:.4f}" for measure in MEASURES]
            low, high = system.intervals["ndcg@10"]
            print(
                name if system.name != "bm25" else "BM25",
                values[0],
                f"{low:.4f} to {high:.4f}",
                *values[1:],
                flush=True,
            )

    measure("before", model)
    out.mkdir(parents=True, exist_ok=True)
    pairs = [
        {"query": queries[query], "document": corpus[document], "label": grade}
        for query, row in qrels["train"].items()
        for document, grade in row.items()
        if corpus[document]
    ]
    (out / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
    given = RetrievalInput(corpus=corpus, queries={q: queries[q] for q in halves["train"]}, qrels=qrels["train"])
    folder = osbert.load(model).folder
    tally = mine_negatives(given, model=folder, out=out / "mined.jsonl", options=MiningOptions())
    print(*tally.lines(), sep="\n")
    for rows in ("pairs", "mined"):
        for seed in range(3):
            run = out / f"{rows}-{seed}"
            osbert.finetune("contrastive", model=model, data=out / f"{rows}.jsonl", out=run, seed=seed, **SETTINGS)
            measure(run.name, run)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:4])
