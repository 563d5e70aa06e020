"""A table of a text's own phrases: its numbers as a plain count has them, in words and in Chinese characters."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import osbert
from osbert_lab.ernie import phrase_search
from osbert_lab.ernie.phrase_table import WORD, PhraseRow, find_phrases, table_lines


def plain_table(sentences: list[str], *, longest: int, count: int) -> dict[str, PhraseRow]:
    """Return every run of two or more words with its numbers, counted one by one."""
    runs: list[list[str]] = []
    for sentence in sentences:
        run: list[str] = []
        for part in sentence.replace(",", " , ").split():
            if part == ",":
                runs, run = [*runs, run], []
            else:
                run.append(part)
        runs.append(run)
    total = sum(map(len, runs))
    counts: Counter[tuple[str, ...]] = Counter()
    sides: tuple[dict[tuple[str, ...], Counter[str]], ...] = (defaultdict(Counter), defaultdict(Counter))
    for run in runs:
        for size in range(1, longest + 1):
            for begin in range(len(run) - size + 1):
                words = tuple(run[begin : begin + size])
                counts[words] += 1
                sides[0][words][run[begin - 1] if begin else ""] += 1
                sides[1][words][run[begin + size] if begin + size < len(run) else ""] += 1

    def entropy(words: Counter[str]) -> float:
        return -sum(n / words.total() * math.log(n / words.total()) for n in words.values())

    return {
        " ".join(words): PhraseRow(
            phrase=" ".join(words),
            count=number,
            cohesion=min(
                math.log(number * total / counts[words[:cut]] / counts[words[cut:]]) for cut in range(1, len(words))
            ),
            before=entropy(sides[0][words]),
            behind=entropy(sides[1][words]),
        )
        for words, number in counts.items()
        if len(words) > 1 and number >= count
    }


def assert_equal(rows: list[PhraseRow], expected: dict[str, PhraseRow]) -> None:
    assert {row.phrase for row in rows} == {*expected}
    for row in rows:
        other = expected[row.phrase]
        assert row.count == other.count
        for name in ("cohesion", "before", "behind"):
            assert getattr(row, name) == pytest.approx(getattr(other, name), abs=1e-9)
    assert rows == sorted(rows, key=lambda row: (-row.count, row.phrase))


EVERY_RUN = {"cohesion": -math.inf, "freedom": -math.inf}


@given(st.lists(st.text("abcd ,", max_size=40), max_size=8), st.integers(1, 4), st.integers(2, 5))
def test_numbers_are_those_of_a_plain_count(sentences: list[str], count: int, longest: int) -> None:
    rows = find_phrases(sentences, longest=longest, count=count, **EVERY_RUN)
    assert_equal(rows, plain_table(sentences, longest=longest, count=count))


@given(st.lists(st.text("abcd ,", max_size=30), max_size=6), st.integers(1, 3), st.integers(2, 60))
def test_a_bound_that_is_not_reached_changes_nothing(sentences: list[str], count: int, limit: int) -> None:
    """The text is counted in blocks of a quarter of the limit. Where something is forgotten, a remark tells."""
    remarks: list[str] = []
    rows = find_phrases(sentences, longest=3, count=count, **EVERY_RUN, limit=limit, remark=remarks.append)
    expected = plain_table(sentences, longest=3, count=count)
    if not remarks:
        assert_equal(rows, expected)
    else:
        assert len(remarks) == 1 and f"{limit:,} different" in remarks[0]
        assert all(row.count <= expected[row.phrase].count for row in rows)


def test_frequent_phrases_outlive_the_bound() -> None:
    """A hundred different words at a time suffice for a phrase that is in every sentence."""
    rng = random.Random(0)
    sentences = [f"w{rng.randrange(10**9)} new york w{rng.randrange(10**9)}" for _ in range(500)]
    remarks: list[str] = []
    rows = find_phrases(sentences, cohesion=1, limit=100, remark=remarks.append)
    assert [row.phrase for row in rows] == ["new york"] and 450 < rows[0].count <= 500 and len(remarks) == 1
    assert [row.count for row in find_phrases(sentences, cohesion=1)] == [500]


def test_thresholds_select() -> None:
    rng = random.Random(0)
    words = [f"w{number}" for number in range(60)]
    sentences = []
    for _ in range(400):
        text = rng.choices(words, k=12)
        text[rng.randrange(10)] = rng.choice(["New York", "Republic of China", "w1 w2"])
        sentences.append(" ".join(text))
    found = {row.phrase: row for row in find_phrases(sentences)}
    assert {"New York", "Republic of China"} <= {*found} and "Republic of" not in found and "of China" not in found
    assert find_phrases(sentences, count=10**6) == [] == find_phrases([]) == find_phrases(["", "a", ",,,"])
    assert [*table_lines([found["New York"]])][1].split("\t")[:2] == ["New York", str(found["New York"].count)]


def test_chinese_characters_are_words() -> None:
    assert WORD.findall("我爱New York的2024年。") == ["我", "爱", "New", "York", "的", "2024", "年"]
    rng = random.Random(1)
    others = [chr(0x4E00 + number) for number in range(500, 560)]
    sentences = ["".join([*rng.choices(others, k=15), "北京", *rng.choices(others, k=15), "。"]) for _ in range(60)]
    rows = find_phrases(sentences)
    assert [(row.phrase, row.count) for row in rows] == [("北京", 60)]


def test_a_corpus_has_its_own_phrases_as_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = random.Random(2)
    words = [f"{first}{second}" for first in "bdfg" for second in "aeiou"]
    lines = [" ".join([*rng.choices(words, k=14), "new york", *rng.choices(words, k=14), "."]) for _ in range(80)]
    Path("texts.txt").write_text("\n\n".join(lines))
    osbert.train_tokenizer("texts.txt", out="vocabulary", vocabulary=80)
    plain = osbert.build_corpus("texts.txt", tokenizer="vocabulary", out="plain", workers=1)
    marked = osbert.build_corpus("texts.txt", tokenizer="vocabulary", out="corpus", phrases="frequent", workers=1)
    assert Path("corpus/.phrases.tsv").read_text().splitlines()[1].startswith("new york\t80\t")
    words_of = [sum(int(corpus.read(block).words.sum()) for block in corpus.blocks()) for corpus in (plain, marked)]
    assert words_of[0] - words_of[1] == 80
    marked.verify()
    again = osbert.build_corpus("texts.txt", tokenizer="vocabulary", out="corpus", phrases="frequent", workers=1)
    assert again.content == marked.content
    events: list[str] = []
    monkeypatch.setattr(phrase_search, "find_phrases", partial(find_phrases, limit=100))
    osbert.build_corpus(
        "texts.txt", tokenizer="vocabulary", out="bounded", phrases="frequent", workers=1,
        watch=lambda event: events.append(str(event)),
    )  # fmt: skip
    assert sum("more than 100 different words" in event for event in events) == 1
