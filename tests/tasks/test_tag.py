"""tag: labels and windows, entities back from outputs, documents, plain input, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from osbert.data.batch import collate
from osbert.data.example import Example
from osbert.data.pack import Packer
from osbert.errors import Problems
from osbert.evaluation.score import constant_answer
from osbert.models.architecture import Architecture
from osbert.reading.tagged.schemes import EntitySpan, label_names, read_tags, write_tags
from osbert.tasks import Record, findings, load
from osbert.tasks.kinds.tag import Tag
from osbert.tasks.kinds.tag.passages import EntityPrediction, TaggedText
from osbert.tasks.record import records_per_step
from osbert.text.tokenizer import SPECIALS, Tokenizer
from refusals import refusal

TYPES = ("LOC", "PER")
TOKENIZER = Tokenizer([*SPECIALS, "a", "##a", "##b", "b", ".", "-"])
WORDS = ["a", "aab", "b", "ab", ".", "zz", "\u200d"]


@st.composite
def tagged(draw: st.DrawFn) -> TaggedText:
    """Draw words in sentences with entities."""
    words = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=14))
    firsts = sorted({0, *draw(st.lists(st.integers(0, len(words) - 1), max_size=2))})
    spans, place = [], 0
    for gap, size, type_ in draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from(TYPES)))):
        span = EntitySpan(place + gap, place + gap + size, type_)
        if span.end <= len(words) and not any(span.start < first < span.end for first in firsts):
            spans.append(span)
        place = span.end
    ends = np.cumsum([len(word) + 1 for word in words]).tolist()
    places = tuple((end - len(word) - 1, end - 1) for word, end in zip(words, ends))
    text = " ".join(words)
    return TaggedText(number=3, texts=(text,), words=places, label=tuple(spans), sentences=tuple(firsts))


def perfect(task: Tag, examples: Sequence[Example]) -> list[np.ndarray]:
    """Return outputs that say the targets wherever there are any, and nonsense elsewhere."""
    count = len(task.labels)
    found = []
    for number, example in enumerate(examples):
        outputs = np.random.default_rng(number).normal(scale=9, size=(len(example), count)).astype(np.float32)
        if task.name in example.targets:
            target = example.targets[task.name]
            outputs[target.index] = 0
            outputs[target.index, target.labels % count] = 20
        found.append(outputs)
    return found


@settings(max_examples=150)
@given(
    tagged(),
    st.sampled_from(["bio", "bioes"]),
    st.sampled_from(["first", "all"]),
    st.booleans(),
    st.integers(5, 20),
    st.integers(0, 9),
)
def test_entities_come_back_from_outputs_that_say_the_targets(
    record: TaggedText, scheme: str, pieces: str, legal: bool, length: int, overlap: int
) -> None:
    task = Tag(types=TYPES, scheme=scheme, pieces=pieces, legal=legal, overlap=overlap)
    packer = Packer(tokenizer=TOKENIZER, length=length)
    examples = task.encode(record, packer)
    found = task.decode(perfect(task, examples), record, examples)
    assert isinstance(found, EntityPrediction) and found.words == record.label and not found.illegal
    for one, span in zip(found.value, found.words, strict=True):
        assert record.texts[0][one.start : one.end] == one.text
        assert one.text == " ".join(record.texts[0].split(" ")[span.start : span.end])
        assert one.probability > 0.9
    assert [one[:4] for one in found.value] == [one[:4] for one in record.expected] and task.outcome(
        found, record
    ).error == 0
    labelled = [target for example in examples for target in example.targets.values()]
    tokens = sum(len(target.labels) for target in labelled)
    assert tokens == (len(record.words) if pieces == "first" else sum(_pieces(record)))
    assert not any(example.truncated for example in examples)


def _pieces(record: TaggedText) -> list[int]:
    return [max(len(TOKENIZER.encode(record.texts[0][start:end])), 1) for start, end in record.words]


@given(tagged(), st.integers(5, 20))
def test_a_crf_is_told_where_chains_begin(record: TaggedText, length: int) -> None:
    task = Tag(types=TYPES, decoder="crf")
    examples = task.encode(record, Packer(tokenizer=TOKENIZER, length=length))
    plain = dataclasses.replace(task, decoder="linear").encode(record, Packer(tokenizer=TOKENIZER, length=length))
    begins = 0
    for example, other in zip(examples, plain, strict=True):
        if task.name in example.targets:
            labels = example.targets[task.name].labels
            index = example.targets[task.name].index
            same = np.isin(other.targets[task.name].index, index)
            assert (labels % len(task.labels) == other.targets[task.name].labels[same]).all()
            assert labels[0] >= len(task.labels)
            tags = [task.labels[label] for label in (labels % len(task.labels)).tolist()]
            chains = np.split(tags, np.flatnonzero(labels >= len(task.labels)))
            assert all(write_tags(read_tags(chain), len(chain), "bio") == list(chain) for chain in chains)
            begins += len(chains) - 1
    assert begins <= len(record.sentences) + len(examples) - 1
    if len(examples) == 1:
        assert begins == len(record.sentences)


def test_a_crfs_loss_is_that_of_its_chains_and_it_decodes_with_what_it_learnt() -> None:
    task = Tag(types=("X",), decoder="crf", legal=True)
    record = dataclasses.replace(task.record_of(["a b a a"]), label=(EntitySpan(1, 3, "X"),), sentences=(0, 3))
    packer = Packer(tokenizer=TOKENIZER, length=8)
    backbone = Architecture(layers=1, heads=1, width=4, vocabulary=len(TOKENIZER), length=8, dropout=0).build().eval()
    head = task.head(backbone)
    examples = task.encode(record, packer)
    batch = collate([*examples, *examples])
    states = backbone(batch)
    loss = head(states, batch)
    assert loss.count == 8
    scores = head.outputs(states, batch)[1:5]
    alone = head.crf.log_likelihood(scores, torch.tensor([0, 1, 2, 0]), (3, 1)).sum()
    torch.testing.assert_close(loss.total, -2 * alone)
    # A step that has learnt to be worth a lot decides, and only in `decoding`.
    outputs = [np.zeros((6, 3), np.float32)]
    with torch.no_grad():
        head.crf.steps[1, 2] = 9
        head.crf.first[1] = 9
    assert task.decode_with(head.decoding_values())(outputs, record, examples).comparable[0] == EntitySpan(0, 2, "X")
    assert task.decode(outputs, record, examples).value == ()


def test_what_is_illegal_is_repaired_and_counted_or_ruled_out() -> None:
    record = Tag().record_of(["a b a"])
    task = Tag(types=("X",))
    examples = task.encode(record, Packer(tokenizer=TOKENIZER, length=8))
    outputs = np.zeros((5, 3), np.float32)
    outputs[[1, 2, 3], [0, 2, 2]] = 5, 2, 5  # O I-X I-X
    found = task.decode([outputs], record, examples)
    assert found.words == (EntitySpan(1, 3, "X"),) and found.illegal == 1
    labelled = [dataclasses.replace(record, label=())]
    assert task.metrics([found], labelled)["illegal"] == pytest.approx(1 / 3)
    found = dataclasses.replace(task, legal=True).decode([outputs], record, examples)
    assert found.illegal == 0 and found.words == (EntitySpan(1, 3, "X"),)


def test_plain_text_and_texts_without_words() -> None:
    task = Tag(types=("X",))
    record = task.record_of(["Zz-a, 你好"])
    assert [record.texts[0][start:end] for start, end in record.words] == ["Zz", "-", "a", ",", "你", "好"]
    packer = Packer(tokenizer=TOKENIZER, length=8)
    for text in ("", " \n"):
        empty = task.record_of([text])
        examples = task.encode(empty, packer)
        found = task.decode([np.zeros((2, 3), np.float32)], empty, examples)
        assert len(examples) == 1 and found.value == () and found.lines() == ["no entities"]
    characters = Tag(types=("X",), split="characters")
    assert [len(word) for word in _texts(characters.record_of(["2 个a"]))] == [1, 1, 1]
    with refusal("wrong-number-of-texts", "2"):
        task.record_of(["a", "b"])


def _texts(record: TaggedText) -> list[str]:
    return [record.texts[0][start:end] for start, end in record.words]


def test_a_text_of_a_hundred_thousand_words_is_read_in_windows() -> None:
    task = Tag(types=("X",))
    record = task.record_of(["a b. " * 33_334])
    examples = task.encode(record, Packer(tokenizer=TOKENIZER, length=512))
    assert len(record.words) == 100_002 and not any(example.truncated for example in examples)
    outputs = [np.tile(np.array([0, 9, 0], np.float32), (len(example), 1)) for example in examples]
    assert len(task.decode(outputs, record, examples).value) == 100_002


def folder(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        (tmp_path / f"{name}.conll").write_text(text, encoding="utf-8")
    return tmp_path


TRAIN = "-DOCSTART- O\n\nAnn B-PER\nsaw O\n\nBob B-PER\nin O\nRome B-LOC\n\n-DOCSTART- O\n\nNo O\n"


def test_types_are_learnt_and_documents_read_together(tmp_path: Path) -> None:
    data = folder(tmp_path, train=TRAIN, dev="Ann B-PER\n")
    task, records = load(Tag(data=str(data), context="document"), ("train", "dev"))
    assert task.types == ("LOC", "PER") and task.labels == label_names(("LOC", "PER"), "bio")
    first, second = records["train"]
    assert first.texts == ("Ann saw\nBob in Rome",) and first.sentences == (0, 2) and first.parts == [(0, 2), (2, 5)]
    assert (
        first.label == (EntitySpan(0, 1, "PER"), EntitySpan(2, 3, "PER"), EntitySpan(4, 5, "LOC"))
        and second.label == ()
    )
    assert task.description.describe_split(records["train"]) == "3 sentences in 2 rows, 3 entities (LOC 1, PER 2)"
    assert len(list(Tag(data=str(data)).source.records("train", Problems(heading="")))) == 3
    assert "in 2 documents; tags in BIO" in findings(task)[0]
    assert findings(task)[-1].startswith("a row is a document")
    counts = [records_per_step(batch, records["train"]) for batch in (1, 3, 6)]  # of 3 sentences in 2 documents
    assert counts == [1, 2, 4]


def test_a_share_is_held_out_and_a_test_file_needs_no_tags(tmp_path: Path) -> None:
    data = folder(tmp_path, train="Ann B-PER\n\n" * 20, test="Ann\nsaw\n")
    _, records = load(Tag(data=str(data), held_out=0.25), ("train", "dev", "test"))
    assert [len(records[split]) for split in ("train", "dev", "test")] == [15, 5, 1]
    assert records["test"][0].label is None
    assert "25% of the training texts" in findings(Tag(data=str(data), held_out=0.25))[-1]
    with refusal("missing-split"):
        list(Tag(data=str(data / "train.conll")).source.records("test", Problems(heading="")))


def test_a_rare_type_stays_with_the_training_texts(tmp_path: Path) -> None:
    """Wherever in the file it stands, some place of which would be held out."""
    lines = ["Ann B-PER\n\n"] * 20
    for place in range(20):
        path = tmp_path / "all.conll"
        path.write_text("".join([*lines[:place], "Rome B-LOC\n\n", *lines[place:]]))
        task, records = load(Tag(data=str(path)), ("train", "dev"))
        assert task.types == ("LOC", "PER") and len(records["dev"]) == 2


def test_all_problems_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    data = folder(tmp_path, train=TRAIN + "word\n", dev="Ann B-PERS\nBob B-PERS\nsaw X\n\nRome B-LOK\n")
    with refusal("unusable-row", "train.conll, line 13: 1", "line 3 has 2", "dev.conll, line 3: ", "'X'"):
        load(Tag(data=str(data)), ("train", "dev"))
    (data / "dev.conll").write_text("Ann B-PERS\nBob B-PERS\n\nRome B-LOK\n")
    (data / "train.conll").write_text(TRAIN)
    with refusal("unknown-label") as error:
        load(Tag(data=str(data)), ("train", "dev"))
    first, second = str(error.value).splitlines()[1:]
    assert all(value in first for value in ("dev.conll, line 1: ", "'PERS'", "LOC, PER", "'PER'"))
    assert all(value in second for value in ("dev.conll, line 4: ", "'LOK'", "LOC, PER", "'LOC'"))


def test_only_o_is_nothing_to_learn(tmp_path: Path) -> None:
    data = folder(tmp_path, train="Ann O\n\nBob O\n", dev="Ann O\n")
    with refusal("nothing-to-learn"):
        load(Tag(data=str(data)), ("train", "dev"))


@pytest.mark.parametrize("wrong", [{"held_out": 1.0}, {"overlap": -1}, {"decoder": "crf", "pieces": "all"}])
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"held_out|overlap|crf"):
        Tag(**wrong)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("in.txt", "Ann saw Bob\n\nRome is old\n"),
        ("in.csv", 'id,text\n1,"Ann saw Bob"\n2,\n3,Rome is old\n'),
        ("in.jsonl", '{"text": "Ann saw Bob"}\n{"text": "Rome is old"}\n'),
        ("in.jsonl", '{"tokens": ["Ann", "saw", "Bob"]}\n{"tokens": ["Rome", "is", "old"]}\n'),
        ("in.conll", "Ann\nsaw\nBob\n\nRome\nis\nold\n"),
        ("in.txt", "Ann\nsaw\nBob\n\nRome\nis\nold\n"),
        ("in.tsv", "Ann\tB-PER\nsaw\tO\nBob\tO\n\nRome\tO\nis\tO\nold\tO\n"),
    ],
)
def test_files_to_predict(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    problems = Problems(heading="")
    inputs = Tag(types=("X",)).source.inputs(path)
    rows = list(inputs.rows(problems))
    found = [record for _, record in rows if record is not None]
    assert [" ".join(_texts(record)) for record in found] == ["Ann saw Bob", "Rome is old"]
    assert not problems.count and len(rows) == len(found) + (name == "in.csv" or text.startswith("Ann saw Bob\n\n"))
    assert all(row.line for row, _ in rows)


def test_documents_of_a_file_to_predict_are_read_together_as_in_training(tmp_path: Path) -> None:
    path = folder(tmp_path, test=TRAIN) / "test.conll"
    inputs = Tag(types=("X",), context="document").source.inputs(path)
    rows = list(inputs.rows(Problems(heading="")))
    assert [row.values["text"] for row, _ in rows] == ["Ann saw\nBob in Rome", "No"]
    assert [record.sentences for _, record in rows] == [(0, 2), (0,)]
    assert rows[0][0].source["words"] == ["Ann", "saw", "Bob", "in", "Rome"] and rows[1][0].line == 12


def test_a_prediction_is_written_as_json_and_told_in_lines() -> None:
    task = Tag(types=("X",))
    record = task.record_of(["a b"])
    examples = task.encode(record, Packer(tokenizer=TOKENIZER, length=8))
    outputs = np.full((4, 3), -9, np.float32)
    outputs[[1, 2], [1, 2]] = 9
    found = task.decode([outputs], record, examples)
    (entity,) = found.as_dict()["prediction"]
    assert entity == {"start": 0, "end": 3, "type": "X", "text": "a b", "probability": pytest.approx(1)}
    assert json.loads(task.cells(found)["prediction"]) == [entity] and task.cells(None) == {"prediction": ""}
    assert found.lines() == ["100.00%  X  a b  (0-3)"]
    assert task.export_metadata() == {"labels": ("O", "B-X", "I-X")}


def test_one_label_a_word() -> None:
    task = Tag(types=("DT", "NN"), scheme="words")
    record: Record = dataclasses.replace(
        task.record_of(["a b b"]), label=(EntitySpan(0, 1, "DT"), EntitySpan(2, 3, "NN"))
    )
    examples = task.encode(record, Packer(tokenizer=TOKENIZER, length=8))
    assert task.labels == ("O", "DT", "NN")
    assert examples[0].targets["tag"].labels.tolist() == [1, 0, 2]
    assert task.decode(perfect(task, examples), record, examples).comparable == record.label


def predicted(record: TaggedText, spans: tuple[EntitySpan, ...]) -> EntityPrediction:
    return EntityPrediction(value=tuple(map(record.entity, spans)), words=spans)


def test_a_collapse_is_told_in_words() -> None:
    records = [
        TaggedText(number=0, texts=("Ann",), words=((0, 3),), label=(EntitySpan(0, 1, "PER"),)),
        TaggedText(number=1, texts=("no",), words=((0, 2),), label=()),
    ]

    def said(*values: tuple[EntitySpan, ...]) -> str:
        return constant_answer(Tag(), [predicted(*pair) for pair in zip(records, values)], records)

    person = (EntitySpan(0, 1, "PER"),)
    assert said((), ()) == "found to hold no entity" and said(person, ()) == ""
    assert said(*[person] * 2) == "found to hold the same (PER)"
    assert said((), person) == "found to hold none of its entities"
    # Labels that are alike make a constant answer no better, unless it is right.
    records = [records[0]] * 2
    assert said((), ()) == "found to hold no entity" and said(person, person) == ""


def test_one_tag_for_every_word_is_a_collapse() -> None:
    nouns = [tuple(EntitySpan(word, word + 1, "NN") for word in range(count)) for count in (2, 3)]
    words = ((0, 1), (2, 3), (4, 5))
    label = (*nouns[0][:1], EntitySpan(1, 2, "VB"))
    records = [TaggedText(number=0, texts=("a b c",), words=words, label=label) for _ in nouns]
    task = Tag(scheme="words", types=("NN", "VB"))
    assert (
        constant_answer(task, [predicted(*pair) for pair in zip(records, nouns)], records)
        == "tagged 'NN' in every word"
    )


def test_two_classes_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="'pos'"):
        Tag(types=("neg", "pos", "pos"))
