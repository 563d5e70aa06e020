"""Spans by name: layout and decoding by their definitions, scores by GLiNER's formula, training, and labels by name."""

from __future__ import annotations

import dataclasses
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

import osbert
from osbert.data.batch import collate, halves
from osbert.data.pack import Packer
from osbert.evaluation.forward import outputs
from osbert.inference.engine import Engine, load
from osbert.models.architecture import Architecture
from osbert.models.contract import Learner
from osbert.reading.tagged.schemes import EntitySpan
from osbert.server.calls.models import ServerModel
from osbert.server.calls.predict import TagCall
from osbert.server.calls.schemas import Refusal
from osbert.tasks import load as load_task
from osbert.text.tokenizer import SPECIALS, Tokenizer
from osbert_lab.named_spans import NamedSpans
from osbert_lab.named_spans.decoding import ScoredSpan, best_threshold, choose_spans
from osbert_lab.named_spans.head import NamedSpanHead
from osbert_lab.named_spans.layout import SpanWindow
from refusals import refusal
from tiny_runs import write_run

WORDS = ["good", "bad", "film", "play", "the", "a", "actor", "city", "person", "##s", ".", "well", "-", "known"]
TOKENIZER = Tokenizer([*SPECIALS, *WORDS])
PACKER = Packer(tokenizer=TOKENIZER, length=16)
SIZES = Architecture(layers=1, heads=2, width=16, vocabulary=len(TOKENIZER), length=16, dropout=0.0)
TASK = NamedSpans(types=("person", "city"), width=3, overlap=4).for_model(SIZES, TOKENIZER)
TEXT = "the good actor . a bad film . the city . a play"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    task = dataclasses.replace(TASK, threshold=0.6)
    return write_run(tmp_path_factory.mktemp("spans") / "run", task, words=WORDS)


@pytest.fixture(scope="module")
def model(folder: Path) -> Engine:
    return load(folder)


def spans_of(prediction: Any) -> set[tuple[int, int, str]]:
    return {(one.start, one.end, one.type) for one in prediction.value}


def test_a_sequence_has_types_and_text() -> None:
    [window] = TASK.encode(TASK.record_of(["the actor [MASK]"]), PACKER)
    tokens = TOKENIZER.tokens(window.ids)
    expected = ["[CLS]", "[MASK]", "person", "[MASK]", "city", "[SEP]", "the", "actor"]
    assert tokens[:8] == expected and "[MASK]" not in tokens[8:]  # what the text spells is no marker
    assert np.flatnonzero(window.words).tolist() == [*range(6, len(tokens) - 1)]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=40), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_every_short_span_is_whole_in_a_window(sizes: list[int], overlap: int) -> None:
    text = " ".join("play" + "s" * (size - 1) for size in sizes)
    task = dataclasses.replace(TASK, overlap=overlap)
    windows = task.encode(task.record_of([text]), PACKER)
    assert all(isinstance(window, SpanWindow) and len(window) <= PACKER.length for window in windows)
    runs = [(window.first_word, window.first_word + int(window.words.sum())) for window in windows]  # type: ignore[attr-defined]
    assert sum(window.truncated for window in windows) == 0
    for start in range(len(sizes)):
        end = min(start + 3, len(sizes))
        if sum(sizes[start:end]) <= 9:  # the room beside the types
            assert any(first <= start and end <= last for first, last in runs)


def test_a_word_longer_than_a_sequence_is_counted() -> None:
    windows = TASK.encode(TASK.record_of(["a " + "plays" * 1 + "s" * 30 + " a"]), PACKER)
    assert sum(window.truncated for window in windows) > 0 or TOKENIZER.unknown in windows[0].ids


@pytest.mark.parametrize("pooled", [False, True])
def test_scores_are_those_of_the_definition(pooled: bool) -> None:
    torch.manual_seed(0)
    backbone = SIZES.build()
    head = NamedSpanHead(
        backbone, target="spans", width=3, hidden=8, recurrent=True, marker=TOKENIZER.mask, pooled=pooled
    )
    learner = Learner(backbone, {"spans": head}).eval()
    texts = ["the good actor", "a film", "the city . a"]
    examples = [window for text in texts for window in TASK.encode(TASK.record_of([text]), PACKER)]
    rows = outputs(learner, "spans", examples, per_token=True)
    for example, row in zip(examples, rows, strict=True):
        batch = collate([example])
        with torch.no_grad():
            states = head.project(backbone(batch).hidden)
            words, _ = head.recurrent(states[batch.head_words][:, None])  # type: ignore[misc, index]
            marked = (batch.ids == TOKENIZER.mask).nonzero()[:, 0].tolist()
            ends = [*marked[1:], int(batch.head_words.nonzero()[0, 0]) - 1]
            read = [states[at:end].mean(0) if pooled else states[at] for at, end in zip(marked, ends, strict=True)]
            words, types = words[:, 0], head.query(torch.stack(read))
            table = row.reshape(len(row), 3, -1)[example.words]
            for first, width in product(range(len(words)), range(3)):
                if first + width < len(words):
                    ends = torch.cat([head.start(words[first]), head.end(words[first + width])])
                    expected = types @ head.span(functional.relu(ends))
                    np.testing.assert_allclose(table[first, width, :2], expected.numpy(), atol=1e-5)


def test_the_loss_is_the_same_in_halves_and_by_definition() -> None:
    torch.manual_seed(0)
    backbone = SIZES.build()
    learner = Learner(backbone.eval(), {"spans": TASK.head(backbone)}).eval().requires_grad_(False)
    labels = [(EntitySpan(1, 3, "person"), EntitySpan(2, 3, "city")), (), (EntitySpan(0, 1, "city"),)]
    examples = []
    for number, (text, label) in enumerate(zip(["the good actor", "a film .", "city"], labels)):
        examples += TASK.encode(dataclasses.replace(TASK.record_of([text]), number=number, label=label), PACKER)
    batch = collate(examples)
    whole = learner(batch)["spans"]
    parts = [learner(half)["spans"] for half in halves(batch)]
    assert whole.count == sum(part.count for part in parts) == 10
    assert float(whole.total) == pytest.approx(sum(float(part.total) for part in parts), rel=1e-5)
    expected = 0.0
    for example, label in zip(examples, labels):
        [row] = outputs(learner, "spans", [example], per_token=True)
        table = row.reshape(len(row), 3, -1)[example.words]
        for first, width, type_ in product(range(len(table)), range(3), range(2)):
            if first + width < len(table):
                truth = EntitySpan(first, first + width + 1, TASK.types[type_]) in label
                expected += float(np.logaddexp(0, -table[first, width, type_] if truth else table[first, width, type_]))
    assert float(whole.total) == pytest.approx(expected, rel=1e-4)


def test_gradients_are_those_of_the_definition() -> None:
    torch.manual_seed(0)
    backbone = Architecture(layers=1, heads=2, width=16, vocabulary=len(TOKENIZER), length=16, dropout=0.0).build()
    head = NamedSpanHead(
        backbone, target="spans", width=3, hidden=8, recurrent=False, marker=TOKENIZER.mask, pooled=False
    )
    learner = Learner(backbone, {"spans": head}).eval()
    labels = [(EntitySpan(1, 3, "person"), EntitySpan(2, 3, "city")), (), (EntitySpan(0, 1, "city"),)]
    examples = []
    for text, label in zip(["the good actor a film", "a film .", "city"], labels):
        examples += TASK.encode(dataclasses.replace(TASK.record_of([text]), label=label), PACKER)
    weights = [*learner.parameters()]
    found = torch.autograd.grad(learner(collate(examples))["spans"].total, weights, allow_unused=True)
    total = torch.zeros(())
    for example, label in zip(examples, labels):
        batch = collate([example])
        states = head.project(backbone(batch).hidden)
        words, types = states[batch.head_words], head.query(states[batch.ids == TOKENIZER.mask])
        for first, width, type_ in product(range(len(words)), range(3), range(2)):
            if first + width < len(words):
                last = first + width
                ends = torch.cat([head.start(words[first : first + 1]), head.end(words[last : last + 1])], dim=1)
                score = (types[type_] * head.span(functional.relu(ends))).sum()
                truth = EntitySpan(first, first + width + 1, TASK.types[type_]) in label
                total = total + functional.softplus(-score if truth else score)
    for mine, expected in zip(found, torch.autograd.grad(total, weights, allow_unused=True), strict=True):
        assert (mine is None) == (expected is None)
        if mine is not None:
            torch.testing.assert_close(mine, expected, atol=1e-5, rtol=1e-3)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 4), st.integers(0, 2)), max_size=15), st.booleans())
def test_spans_are_chosen_greedily(drawn: list[tuple[int, int, int]], nested: bool) -> None:
    spans = [ScoredSpan(a, a + n, t, 0.99 - index / 100) for index, (a, n, t) in enumerate(drawn)]
    expected: list[ScoredSpan] = []
    for span in spans:
        words = {*range(*span[:2])}
        others = [{*range(*other[:2])} for other in expected]
        clash = [other for other in others if words & other and not (nested and (words < other or words > other))]
        expected += [] if clash else [span]
    assert choose_spans(spans, nested=nested) == sorted(expected)


@given(st.lists(st.tuples(st.floats(0.03, 1), st.booleans()), max_size=12), st.integers(0, 4))
def test_the_threshold_has_the_highest_f1(scored: list[tuple[float, bool]], missed: int) -> None:
    true = missed + sum(right for _, right in scored)

    def f1(threshold: float) -> float:
        chosen = [right for probability, right in scored if probability > threshold]
        return 2 * sum(chosen) / max(len(chosen) + true, 1)

    threshold = best_threshold(scored, true=true)
    assert f1(threshold) >= max((f1((1 - 1e-6) * probability) for probability, _ in scored), default=0.0)
    assert best_threshold([pair for pair in scored if pair[0] >= threshold], true=true) == threshold


def test_absent_types_are_sampled_and_labels_go_with_their_types() -> None:
    types = ("person", "city", "film", "play", "actor")
    task = dataclasses.replace(TASK, types=types, width=3)
    packer = dataclasses.replace(PACKER, length=40)
    label = (EntitySpan(1, 3, "actor"), EntitySpan(0, 1, "city"))
    record = dataclasses.replace(task.record_of(["city good actor"]), label=label)
    [example] = task.encode(record, packer)
    seen = set()
    for seed in range(30):
        changed = task.corrupt(example, packer, np.random.default_rng(seed))
        tokens = TOKENIZER.tokens(changed.ids)
        asked = [tokens[index + 1] for index, token in enumerate(tokens) if token == "[MASK]"]
        seen.add(tuple(asked))
        assert {"actor", "city"} <= {*asked} <= {*types} and len({*asked}) == len(asked)
        target, words = changed.targets["spans"], np.flatnonzero(changed.words).tolist()
        assert target.index is not None
        found = {
            EntitySpan(words.index(at), words.index(at) + one % 3 + 1, asked[one // 3])
            for one, at in zip(target.labels.tolist(), target.index.tolist())
            if one >= 0
        }
        assert found == {*label}
        assert sorted(target.index[target.labels < 0].tolist()) == words
    assert len(seen) > 10


def test_many_types_take_several_passes_and_none_is_lost(model: Engine) -> None:
    names = [f"{a} {b}" for a, b in product(WORDS[:9], WORDS[:9])]
    task = model.fine_tuned.for_labels([(name, "") for name in names])
    assert task is not None
    windows = task.encode(task.record_of([TEXT]), model.packer)
    assert sum(window.types for window in windows if window.first_word == 0) == 81  # type: ignore[attr-defined]
    together = dataclasses.replace(task, nested=True, threshold=0.01)  # type: ignore[call-arg]
    [all_spans] = model._predict_records(together, [together.record_of(["a film"])], 4096)
    assert all_spans.value and all_spans.truncated == 0


def test_labels_by_name_are_those_of_a_run_with_these_types(folder: Path, model: Engine, tmp_path: Path) -> None:
    names = ["film", "actor"]
    [prediction] = model.predict([TEXT], labels=names)
    other = write_run(tmp_path / "other", dataclasses.replace(TASK, types=tuple(names), threshold=0.6), words=WORDS)
    [expected] = load(other).predict([TEXT])
    assert prediction == expected and prediction.value
    assert all(TEXT[one.start : one.end] == one.text for one in prediction.value)
    [described] = model.predict([TEXT], labels={"X": "film", "Y": "actor"})
    renamed = {"film": "X", "actor": "Y"}
    assert spans_of(described) == {(a, b, renamed[type_]) for a, b, type_ in spans_of(prediction)}
    by_text = model.predict([TEXT, "a film"], labels=[["actor"], names])
    assert by_text[0] == model.predict([TEXT], labels=["actor"])[0]
    assert by_text[1] == model.predict(["a film"], labels=names)[0]
    [nested] = model.predict([TEXT], labels=names, multi=True)
    assert spans_of(nested) >= spans_of(prediction)
    rows = tmp_path / "rows.csv"
    rows.write_text(f'text,asked\n{TEXT},actor\na film,"film,actor"\n')
    osbert.predict(folder, rows, out=tmp_path / "out.jsonl", labels_column="asked")
    written = [json.loads(line)["prediction"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [[one["type"] for one in row] for row in written] == [
        [one.type for one in prediction.value] for prediction in by_text
    ]


def test_labels_that_cannot_be(model: Engine, tmp_path: Path) -> None:
    for labels in (["film", "film"], ["Film", "film"]):
        with refusal("duplicate-name"):
            model.predict([TEXT], labels=labels)
    with refusal("invalid-value"):
        model.predict([TEXT], labels=["film", " "])
    with refusal("invalid-value"):
        model.predict([TEXT], labels=[1, 2])  # type: ignore[list-item]
    with refusal("nothing-to-learn"):
        model.predict([TEXT], labels=[])
    with refusal("options-exclude-each-other"):
        model.predict([TEXT], labels=["film"], template="a {label}")
    with refusal("missing-file", "types.txt"):
        osbert.predict("run", tmp_path / "x.csv", out=tmp_path / "y.csv", labels=str(tmp_path / "types.txt"))


def test_the_server_looks_for_types_of_a_request(model: Engine, runs: dict[str, Path]) -> None:
    served, call = ServerModel("spans", model), TagCall()

    def answer(**values: Any) -> Any:
        request = {"labels": None, "nested": False, **values}
        items = call.items(served, request)
        return call.fields(served, request, items, call.read(served, items, call.option(request)))["entities"]

    for nested in (False, True):
        expected = model.predict([TEXT, ""], labels={"X": "film", "Y": "actor"}, multi=nested)
        found = answer(texts=[TEXT, ""], labels={"X": "film", "Y": "actor"}, nested=nested)
        assert found == [[one._asdict() for one in prediction.value] for prediction in expected] and found[0]
    assert answer(texts=[TEXT]) == [[one._asdict() for one in model.predict([TEXT])[0].value]]
    for values, field in (
        ({"nested": True}, "nested"),
        ({"labels": ["film", "film"]}, "labels"),
        ({"labels": ["film", "Film"]}, "labels"),
        ({"labels": ["film", ""]}, "labels"),
        ({"labels": [f"film {number}" for number in range(2000)], "texts": [TEXT] * 20}, "labels"),
    ):
        with pytest.raises(Refusal) as refused:
            answer(**{"texts": [TEXT], **values})
        assert refused.value.field == field
    served = ServerModel("tagger", load(runs["tagger"]))
    with pytest.raises(Refusal) as refused:
        answer(texts=[TEXT], labels=["film"])
    assert refused.value.field == "labels"


def write_set(folder: Path, tag: str, words: str) -> None:
    folder.mkdir(parents=True)
    for name, count in (("train", 12), ("dev", 4)):
        lines = [f"the O\ngood O\n{words.split()[i % 2]} B-{tag}\n. O\n" for i in range(count)]
        (folder / f"{name}.txt").write_text("\n".join(lines))


def test_several_data_sets_each_with_its_types_then_few_shots(tmp_path: Path) -> None:
    write_set(tmp_path / "data" / "one", "PER", "actor person")
    write_set(tmp_path / "data" / "two", "creative-work", "film play")
    task, records = load_task(NamedSpans(data=str(tmp_path / "data")), ("train", "dev"))
    assert task.types == ("creative work", "person") and len(records["train"]) == 24
    assert {record.types for record in records["train"]} == {("person",), ("creative work",)}  # type: ignore[attr-defined]
    assert [record.number for record in records["dev"]] == [*range(8)]
    encoder = write_run(tmp_path / "encoder", None, words=WORDS)
    options: dict[str, Any] = {"epochs": 30, "batch": 8, "learning_rate": 3e-3, "length": 24}
    run = osbert.finetune("spans", model=encoder, data=tmp_path / "data", out=tmp_path / "run", **options)
    assert run.metrics["f1"] > 0.8
    assert [one.text for one in run.model.predict(["the good film ."])[0].value] == ["film"]
    write_set(tmp_path / "few", "city", "city city")
    more = osbert.finetune(
        "spans", model=run.folder, data=tmp_path / "few", out=tmp_path / "more", epochs=1, learning_rate=1e-9
    )
    before, after = run.model.learner.heads["spans"], more.model.learner.heads["spans"]
    for name, weight in before.state_dict().items():
        torch.testing.assert_close(after.state_dict()[name], weight, atol=1e-5, rtol=0, msg=name)
    assert more.model.fine_tuned.types == ("city",)  # type: ignore[attr-defined]
    with refusal("nothing-to-learn"):
        empty = tmp_path / "empty.txt"
        empty.write_text("the O\n\na O\n")
        load_task(NamedSpans(data=str(empty)), ("train",))


def test_names_for_tags(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a B-PER\nb B-XYZ\n")
    _, records = load_task(NamedSpans(data=str(tmp_path / "a.txt"), type_names=("XYZ=odd one",)), ("all",))
    assert [span.type for span in records["all"][0].label] == ["person", "odd one"]
    with pytest.raises(ValueError, match="TAG=name"):
        NamedSpans(type_names=("XYZ",))


def test_data_with_spans_that_coincide_or_overlap(tmp_path: Path) -> None:
    entities = [(0, 14, "PER"), (9, 14, "job"), (17, 21, "city"), (17, 21, "City")]
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "the good actor . city", "entities": entities}))
    task, records = load_task(NamedSpans(data=str(tmp_path / "a.jsonl")), ("all",))
    expected = (EntitySpan(0, 3, "person"), EntitySpan(2, 3, "job"), EntitySpan(4, 5, "city"))
    assert records["all"][0].label == expected  # one city, though two tags have that name
    assert "; 1 overlap a longer one (--nested" in task.describer(task).describe_split(records["all"])
    nested = dataclasses.replace(task, nested=True)
    assert "overlap" not in nested.describer(nested).describe_split(records["all"])


def test_a_data_set_without_any_span_says_not_what_to_ask_for(tmp_path: Path) -> None:
    write_set(tmp_path / "one", "PER", "actor person")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "train.txt").write_text("the O\nfilm O\n\n" * 8)
    with refusal("nothing-to-learn", "two/train.txt"):
        load_task(NamedSpans(data=str(tmp_path)), ("train", "dev"))
