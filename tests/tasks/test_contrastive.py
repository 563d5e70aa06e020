"""contrastive: texts twice or pairs, whatever the file; scored pairs beside them; scores as scipy has them."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

from osbert.data.pack import Packer
from osbert.errors import Problems
from osbert.models.architecture import Architecture
from osbert.tasks import Record, findings, load
from osbert.tasks.kinds.contrastive import Contrastive, SimilarityPrediction
from osbert.tasks.loading import with_data
from osbert.text.tokenizer import SPECIALS, Tokenizer
from refusals import refusal


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def texts_of(task: Contrastive, split: str) -> list[tuple[tuple[str, ...], object]]:
    problems = Problems(heading="wrong")
    found = [(record.texts, record.label) for record in task.source.records(split, problems)]
    problems.stop_if_any()
    return found


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("lines.txt", "a b\nc d\n", ("text", "")),
        ("bare.tsv", "a b\tc d\ne, f\tg, h\n", ("column 1", "column 2")),
        ("named.csv", "question,answer\na,b\nc,d\n", ("question", "answer")),
        ("labelled.csv", "text,label\na,b\nc,d\n", ("text", "")),
        ("search.csv", "query,document\na,b\nc,d\n", ("query", "document")),
        ("turned.csv", "text,query\na,b\nc,d\n", ("query", "text")),
        ("labelled.csv", "text,category\na,b\nc,d\n", ("text", "")),
        ("context.csv", "context,question\na,b\nc,d\n", ("question", "context")),
    ],
)
def test_columns_are_found(tmp_path: Path, name: str, content: str, columns: tuple[str, str]) -> None:
    sts = written(tmp_path / "sts.csv", "sentence1,sentence2,score\nx,y,3\nx,z,1\n")
    task = Contrastive(data=str(written(tmp_path / name, content)), sts=str(sts)).source.resolve()
    assert (task.text, task.pair) == columns
    rows = texts_of(task, "train")
    assert len(rows) == 2 and {label for _, label in rows} == {1.0}
    assert all(len(texts) == (2 if columns[1] else 1) for texts, _ in rows)
    assert texts_of(task, "dev") == [(("x", "y"), 3.0), (("x", "z"), 1.0)]
    told = "\n".join(findings(task))
    assert ("dropout makes the difference" in told) == (not columns[1])
    assert ("is not read: every row counts as alike" in told) == (name == "labelled.csv")
    assert "scored pairs: " in told


@pytest.mark.parametrize(("labels", "named"), [(["an answer", "a reply"], True), (["b", "b"], False), ([1, 2], False)])
def test_labels_that_are_second_texts_are_named(labels: list[object], named: bool) -> None:
    rows = [("a question", labels[0]), ("another one", labels[1])]
    task, _ = load(with_data(Contrastive(), {"train": rows, "dev": rows}).source.resolve(), ("train", "dev"))
    warnings = task.description.warnings()
    assert len(warnings) == named and all("--pair label" in line for line in warnings)
    pairs = with_data(Contrastive(pair="label"), rows).source.resolve()
    assert texts_of(pairs, "all")[0] == (("a question", str(labels[0])), 1.0)


@pytest.mark.parametrize(
    ("header", "settings", "columns"),
    [
        ("text,pair,negative", {}, ("text", "pair", "negative")),
        ("anchor,positive,negative", {}, ("anchor", "positive", "negative")),
        ("sent0,sent1,hard_neg", {}, ("sent0", "sent1", "hard_neg")),
        ("text,pair,other", {"negative": "other"}, ("text", "pair", "other")),
        ("text,pair,other", {}, ("text", "pair", "")),
    ],
)
def test_a_column_of_negatives_is_read_or_said_not_to_be(
    tmp_path: Path, header: str, settings: dict[str, str], columns: tuple[str, str, str]
) -> None:
    path = written(tmp_path / "triples.csv", f"{header}\na,b,c\nd,e,\n")
    task = Contrastive(data=str(path), **settings).source.resolve()
    assert (task.text, task.pair, task.negative) == columns
    assert [len(texts) for texts, _ in texts_of(task, "all")] == ([3, 2] if columns[2] else [2, 2])
    told = "\n".join(findings(task))
    assert ("not read: 'other'" in told) == (not columns[2]) and ("all in '" in told) == bool(columns[2])


@pytest.mark.parametrize(
    ("name", "content", "rows", "records"),
    [
        (
            "several.csv",
            "query,positive,negative_1,negative_2\na,b,c,d\ne,f,,g\n",
            "pairs",
            [(("a", "b", "c", "d"), 1.0), (("e", "f", "g"), 1.0)],
        ),
        (
            "lists.jsonl",
            '{"query": "a", "pos": ["b", "c"], "neg": ["d", "e"]}\n{"query": "f", "pos": ["g"], "neg": []}\n',
            "pairs",
            [(("a", "b", "d", "e"), 1.0), (("a", "c", "d", "e"), 1.0), (("f", "g"), 1.0)],
        ),
        ("scored.csv", "sentence1,sentence2,score\na,b,1\nc,d,2.5\n", "graded", [(("a", "b"), 1.0), (("c", "d"), 2.5)]),
        (
            "comma.tsv",
            "text1\ttext2\tsimilarity\na\tb\t0,5\nc\td\t1\n",
            "graded",
            [(("a", "b"), 0.5), (("c", "d"), 1.0)],
        ),
        (
            "judged.csv",
            "query,document,label\na,b,2\na,c,0\nd,e,0\nf,g,1\na,h,1\n",
            "judged",
            [(("a", "b", "c"), 1.0), (("a", "h", "c"), 1.0), (("f", "g"), 1.0)],
        ),
        (
            "teacher.csv",
            "query,positive,negative_1,negative_2,positive_score,negative_1_score,negative_2_score\n"
            "a,b,c,d,5,2.5,-1\ne,f,,g,1,,3\n",
            "distilled",
            [(("a", "b", "c", "d"), (2.5, 6.0)), (("e", "f", "g"), (-2.0,))],
        ),
        (
            "teacher.jsonl",
            '{"query": "a", "pos": ["b", "c"], "neg": ["d", "e"], "pos_scores": [3, 4], "neg_scores": [1, 2]}\n'
            '{"query": "f", "pos": ["g"], "neg": [], "pos_scores": [3], "neg_scores": []}\n',
            "distilled",
            [(("a", "b", "d", "e"), (2.0, 1.0)), (("a", "c", "d", "e"), (3.0, 2.0)), (("f", "g"), ())],
        ),
        (
            "scores.jsonl",
            '{"query": "a", "positive": "b", "negative": ["c", "d"], "scores": [3, 1, 0.5]}\n'
            '{"query": "e", "positive": "f", "negative": ["g", "h"], "scores": [1.5, 2]}\n',
            "distilled",
            [(("a", "b", "c", "d"), (2.0, 2.5)), (("e", "f", "g", "h"), (1.5, 2.0))],
        ),
        ("margin.csv", "query,positive,negative,score\na,b,c,1.5\n", "distilled", [(("a", "b", "c"), (1.5,))]),
        ("quora.csv", "question1,question2,is_duplicate\na,b,1\nc,d,0\n", "judged", [(("a", "b"), 1.0)]),
    ],
)
def test_the_columns_say_what_a_row_is(tmp_path: Path, name: str, content: str, rows: str, records: object) -> None:
    task = Contrastive(data=str(written(tmp_path / name, content))).source.resolve()
    assert task.rows == rows and texts_of(task, "all") == records
    assert texts_of(dataclasses.replace(task), "all") == records  # as the recipe of the run names the columns
    assert task.criterion == ("spearman" if rows == "graded" else "accuracy")
    # Another choice is that of the user.
    if rows == "distilled":
        both = Contrastive(data=task.data, rows="pairs").source.resolve()
        assert [(texts, 1.0) for texts, _ in records] == texts_of(both, "all")
    if rows in ("graded", "judged"):
        plain = Contrastive(data=task.data, rows="pairs").source.resolve()
        assert {(len(texts), label) for texts, label in texts_of(plain, "all")} == {(2, 1.0)}
        assert "is not read: every row counts as alike" in "\n".join(findings(plain))


def test_a_teachers_scores_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    row = {"query": "a", "positive": "b", "negative": ["c", "d"], "scores": [1.0, 2, 3]}
    wrong = [[1], [1, "x", 2], [1, 2, 3, 4], "seven", []]
    path.write_text("".join(json.dumps({**row, "scores": scores}) + "\n" for scores in wrong))
    task = Contrastive(data=str(path)).source.resolve()
    with refusal("unusable-row", "line 1", "line 2", "line 3", "line 4", "line 5"):
        texts_of(task, "all")
    path.write_text(json.dumps({"query": "a", "positive": "b", "negative": "c"}) + "\n")
    with refusal("unknown-column", "--label"):
        Contrastive(data=str(path), rows="distilled").source.resolve()
    with refusal("unknown-column", "--negative"):
        Contrastive(
            data=str(written(tmp_path / "x.csv", "query,positive,score\na,b,1\n")), rows="distilled"
        ).source.resolve()


def test_labels_of_entailment_are_in_doubt(tmp_path: Path) -> None:
    table = written(tmp_path / "nli.csv", "premise,hypothesis,label\na,b,0\nc,d,2\n")
    assert any("entailment" in line for line in Contrastive(data=str(table)).source.resolve().source.findings())


def test_rows_that_cannot_be_read_so_are_refused(tmp_path: Path) -> None:
    pairs = written(tmp_path / "pairs.csv", "text1,text2\na,b\n")
    for rows in ("graded", "judged"):
        with refusal("unknown-column", "--label", "query, document and label"):
            Contrastive(data=str(pairs), rows=rows).source.resolve()
    with refusal("unknown-column", "--pair"):
        Contrastive(data=str(written(tmp_path / "lines.txt", "a\nb\n")), rows="pairs").source.resolve()
    none = Contrastive(data=str(written(tmp_path / "none.csv", "query,document,label\na,b,0\n"))).source.resolve()
    with refusal("nothing-to-learn", "'label'"):
        texts_of(none, "all")
    words = Contrastive(
        data=str(written(tmp_path / "words.csv", "text1,text2,label\na,b,entailment\n"))
    ).source.resolve()
    with refusal("unusable-row", "entailment"):
        texts_of(words, "all")


def test_the_rows_of_a_text_are_held_out_together(tmp_path: Path) -> None:
    rows = [f"query {n % 20},document {n}\n" for n in range(80)]
    task = Contrastive(data=str(written(tmp_path / "rows.csv", "query,document\n" + "".join(rows)))).source.resolve()
    train, dev = ({texts[0] for texts, _ in texts_of(task, split)} for split in ("train", "dev"))
    assert len(train) == 18 and len(dev) == 2 and not train & dev


def test_negatives_need_a_pair_and_a_column_that_there_is(tmp_path: Path) -> None:
    path = written(tmp_path / "two.csv", "text,negative\na,b\n")
    with refusal("unknown-column", "--pair"):
        Contrastive(data=str(path)).source.resolve()
    with refusal("unknown-column", "--negative", "'gone'"):
        Contrastive(data=str(path), negative="gone").source.resolve()


def test_without_scored_pairs_a_share_is_held_out(tmp_path: Path) -> None:
    lines = written(tmp_path / "lines.txt", "".join(f"text {n}\n" for n in range(40)))
    task, records = load(Contrastive(data=str(lines)).source.resolve(), ("train", "dev"))
    assert {split: len(rows) for split, rows in records.items()} == {"train": 36, "dev": 4}
    assert task.criterion == "accuracy" and "no scored pairs (--sts): 10%" in "\n".join(findings(task))


def test_a_run_reads_scored_pairs_elsewhere(tmp_path: Path) -> None:
    task = Contrastive(data="gone.txt", text="text", sts="gone.csv")
    other = written(tmp_path / "other.csv", "premise,hypothesis,value\na,b,1\nc,d,2\n")
    moved = task.source.switch_data(other, {"label": "value"})
    assert texts_of(moved, "all") == [(("a", "b"), 1.0), (("c", "d"), 2.0)]
    assert moved.criterion == "spearman"


def test_pairs_with_an_empty_text_are_left_out_and_counted(tmp_path: Path) -> None:
    path = written(tmp_path / "half.tsv", "query\tanswer\na\tb\nc\t\n \td\ne\tf\n\t\n")
    task = Contrastive(data=str(path), text="query", pair="answer", skip_empty=True).source.resolve()
    assert [texts for texts, _ in texts_of(task, "all")] == [("a", "b"), ("e", "f")]
    assert any(re.search(r"\b3\b.*half\.tsv.*\b3\b", line) for line in task.source.findings()), task.source.findings()


def test_rows_whose_loss_is_always_0_are_refused() -> None:
    pair, same = Record(number=0, texts=("a", "b"), label=()), Record(number=1, texts=("a", "c"), label=())
    for records in ([pair], [pair, same]):
        with refusal("nothing-to-learn"):
            Contrastive(rows="pairs").fit(records)
    Contrastive(rows="pairs").fit([pair, Record(number=1, texts=("d", "e"), label=())])
    Contrastive(rows="pairs").fit([Record(number=0, texts=("a", "b", "c"), label=())])
    graded = [Record(number=number, texts=(str(number), "b"), label=0.5) for number in range(3)]
    with refusal("nothing-to-learn"):
        Contrastive(rows="graded").fit(graded)


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="temperature must be above 0"):
        Contrastive(temperature=0)
    for pooling in ("splade", "colbert"):
        for settings in ({"dimensions": (8,)}, {"projection": "yes"}):
            with pytest.raises(ValueError, match=f"dense vectors, but pooling = {pooling}"):
                Contrastive(pooling=pooling, **settings)
    for settings in ({"query_length": -5}, {"token_width": -1}):
        with pytest.raises(ValueError, match="must be 0 or more"):
            Contrastive(pooling="colbert", **settings)
    with pytest.raises(ValueError, match="window would give a text several vectors"):
        Contrastive(long="window")
    half = Contrastive(data=str(written(tmp_path / "half.tsv", "a\tb\nc\t\n"))).source.resolve()
    with refusal("empty-text", "half.tsv", "2"):
        texts_of(half, "all")
    three = Contrastive(data=str(written(tmp_path / "three.tsv", "a b\tb c\tc d\n")))
    with refusal("unknown-column"):
        three.source.resolve()
    lines = written(tmp_path / "lines.txt", "a\n")
    with refusal("unknown-column"):
        Contrastive(
            data=str(lines), sts=str(written(tmp_path / "no.csv", "sentence1,sentence2\na,b\n"))
        ).source.resolve()
    with refusal("wrong-number-of-texts", "1"):
        Contrastive().record_of(["a"])
    still = dataclasses.replace(Architecture(layers=1, heads=1, width=4, vocabulary=9), dropout=0, attention_dropout=0)
    with refusal("options-exclude-each-other"):
        Contrastive(text="text").head(still.build())
    assert Contrastive(text="text", pair="other").head(still.build()).form == "vectors"


@pytest.mark.parametrize("length", [1, 2, 5, 500])
def test_a_query_length_that_a_model_cannot_read_is_refused(length: int) -> None:
    task = Contrastive(pooling="colbert", text="a", pair="b", query_length=length, token_width=8)
    tokenizer = Tokenizer([*SPECIALS, "a"])
    backbone = Architecture(layers=1, heads=1, width=4, vocabulary=len(tokenizer), length=24).build()
    with refusal("invalid-value", f"--query-length {length}"):
        task.for_model(backbone.architecture, tokenizer).head(backbone)


def test_the_least_query_length_has_room_for_a_text() -> None:
    tokenizer = Tokenizer([*SPECIALS, "a"])
    task = Contrastive(pooling="colbert", text="a", pair="b", query_length=6, query_expansion="none")
    task = task.for_model(Architecture(vocabulary=len(tokenizer), length=24), tokenizer)
    packer = Packer(tokenizer=tokenizer, length=24)
    assert [len(example) for example in task.encode(task.record_of(["a a a a a", "a"]), packer)] == [6, 3]


def test_scores_are_scipys_and_cosines_are_counted() -> None:
    from scipy.stats import pearsonr, spearmanr

    rng = np.random.default_rng(0)
    task, vectors = Contrastive(sts="x"), rng.normal(size=(20, 2, 6)).astype(np.float32)
    records = [Record(number=n, texts=("a", "b"), label=float(n % 5)) for n in range(20)]
    said = [task.decode(list(pair), record, []) for pair, record in zip(vectors, records)]
    cosines = [pair[0] @ pair[1] / np.linalg.norm(pair[0]) / np.linalg.norm(pair[1]) for pair in vectors]
    np.testing.assert_allclose([one.value for one in said], cosines, atol=1e-6)
    labels, values = [record.label for record in records], [one.value for one in said]
    assert task.metrics(said, records) == pytest.approx(
        {"spearman": spearmanr(values, labels).statistic, "pearson": pearsonr(values, labels).statistic}
    )
    unit = np.eye(4)
    found = [SimilarityPrediction(value=0.0, vectors=np.stack([unit[n % 3], unit[n]])) for n in range(4)]
    records = [Record(number=n, texts=(str(n), "b")) for n in range(4)]
    assert Contrastive().metrics(found, records) == {"accuracy": 0.75}
    # The second text of another pair of the same first text is as good.
    records[3] = dataclasses.replace(records[3], texts=("0", "b"))
    assert Contrastive().metrics(found, records) == {"accuracy": 1.0}
