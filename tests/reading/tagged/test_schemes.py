"""Tag schemes: round trips, recognition, repairs as seqeval reads them, and which label may follow which."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import classification_report
from seqeval.metrics.sequence_labeling import get_entities

from osbert.reading.tagged.schemes import (
    EntitySpan,
    FileScheme,
    Scheme,
    entity_scores,
    follows,
    label_names,
    parse,
    read_tags,
    recognise,
    write_tags,
)

TYPES = ("LOC", "PER")
SCHEMES = [scheme for scheme in get_args(FileScheme) if scheme != "words"]
ANY_TAGS = st.lists(st.sampled_from(["O", *(f"{letter}-{kind}" for letter in "BIES" for kind in TYPES)]), max_size=9)


@st.composite
def entities(draw: st.DrawFn) -> tuple[list[EntitySpan], int]:
    """Draw entities that do not overlap, and the number of words."""
    spans, place = [], 0
    for gap, size, kind in draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from(TYPES)))):
        spans.append(EntitySpan(place + gap, place + gap + size, kind))
        place += gap + size
    return spans, place + draw(st.integers(0, 2))


@given(entities(), st.sampled_from(SCHEMES))
def test_entities_come_back_from_every_scheme(drawn: tuple[list[EntitySpan], int], scheme: FileScheme) -> None:
    spans, count = drawn
    tags = write_tags(spans, count, scheme)
    assert len(tags) == count and read_tags(tags) == spans
    assert recognise([tags]).illegal == 0


@given(ANY_TAGS)
def test_any_sequence_is_read_as_seqeval_reads_it(tags: list[str]) -> None:
    assert read_tags(tags) == [EntitySpan(start, end + 1, kind) for kind, start, end in get_entities(tags)]


@given(ANY_TAGS, st.sampled_from(SCHEMES))
def test_writing_repairs_once_and_for_all(tags: list[str], scheme: FileScheme) -> None:
    once = write_tags(read_tags(tags), len(tags), scheme)
    assert write_tags(read_tags(once), len(once), scheme) == once


@given(entities())
def test_one_label_a_word_keeps_labels(drawn: tuple[list[EntitySpan], int]) -> None:
    tags = write_tags(*drawn, "words")
    assert write_tags(read_tags(tags, words=True), len(tags), "words") == tags


@pytest.mark.parametrize(
    ("tags", "scheme", "illegal"),
    [
        ("I-PER I-PER O I-LOC B-LOC", "iob1", 0),
        ("B-PER I-PER O B-LOC B-LOC", "bio", 0),
        ("B-PER E-PER O S-LOC", "bioes", 0),
        ("B-PER L-PER O U-LOC", "bioes", 0),
        ("B-PER M-PER E-PER S-LOC", "bioes", 0),
        ("O O", "bio", 0),
        ("B-PER I-PER O I-LOC B-LOC", "bio", 1),
        ("B-PER I-PER S-LOC", "bioes", 1),
        ("B I O", "bio", 0),
    ],
)
def test_the_scheme_of_a_file_is_recognised(tags: str, scheme: str, illegal: int) -> None:
    found = recognise([tags.split(), ["O"]])
    assert (found.scheme, found.illegal) == (scheme, illegal)


@pytest.mark.parametrize("tag", ["PER", "B-", "X-PER", "", "b-PER", "0"])
def test_an_unknown_tag_is_refused(tag: str) -> None:
    with pytest.raises(ValueError, match="unknown tag"):
        parse(tag)
    with pytest.raises(ValueError, match="unknown tag"):
        recognise([["O", tag]])


@pytest.mark.parametrize("scheme", get_args(Scheme))
@given(data=st.data())
def test_what_may_follow_what_is_what_repairs_leave_alone(scheme: Scheme, data: st.DataObject) -> None:
    tags = data.draw(st.lists(st.sampled_from(label_names(TYPES, scheme)), max_size=6))
    legal = all(follows(before, tag, scheme) for before, tag in zip(["O", *tags], [*tags, "O"]))
    assert legal == (write_tags(read_tags(tags, words=scheme == "words"), len(tags), scheme) == tags)


@given(st.lists(st.tuples(ANY_TAGS, ANY_TAGS), min_size=1))
def test_scores_equal_seqevals(drawn: list[tuple[list[str], list[str]]]) -> None:
    pairs = [(said[: len(true)], true[: len(said)]) for said, true in drawn]
    said, true = [read_tags(said) for said, _ in pairs], [read_tags(true) for _, true in pairs]
    types = sorted({span.type for spans in (*said, *true) for span in spans})
    found = entity_scores(said, true, [*types, "never"])
    assert len(found) == 4 + 3 * len(types)
    if not types:
        assert not any(found.values())
        return
    report = classification_report(
        [true for _, true in pairs], [said for said, _ in pairs], output_dict=True, zero_division=0
    )
    for ours, theirs in (("precision", "precision"), ("recall", "recall"), ("f1", "f1-score")):
        assert found[ours] == pytest.approx(report["micro avg"][theirs])
        for type_ in types:
            assert found[f"{ours}/{type_}"] == pytest.approx(report[type_][theirs])
    assert found["macro_f1"] == pytest.approx(report["macro avg"]["f1-score"])
