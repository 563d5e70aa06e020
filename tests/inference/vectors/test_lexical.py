"""BM25 in scripts without spaces between words: words within texts are found, and other scripts have the same terms."""

from __future__ import annotations

import pytest

from osbert.inference.vectors.lexical import BM25Index
from osbert.text.words import fold_text, terms

TEXTS = [
    "ฉันรักแมวสีดำที่บ้าน", "สุนัขกินข้าว ๒๕ จาน", "ຂ້ອຍຮັກແມວສີດຳ", "ខ្ញុំស្រលាញ់ឆ្មាខ្មៅ។ ឆ្កែ",
    "ကျွန်တော်ကြောင်ကိုချစ်တယ်။", "我喜欢黑猫", "iPhoneราคาถูก", "고양이가 집에 있다",
]  # fmt: skip


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("แมว", 0),
        ("ข้าว", 1),
        ("๒๕", 1),
        ("ແມວ", 2),
        ("ឆ្មា", 3),
        ("ကြောင်", 4),
        ("猫", 5),
        ("ราคา", 6),
        ("iphone", 6),
        ("고양이", 7),
        ("집", 7),
        ("猫喜", 5),
        ("狗黑猫", 5),
        ("黑喜欢", 5),
        ("집고", 7),
    ],
)
def test_words_are_found_within_texts_without_spaces(query: str, index: int) -> None:
    for bm25 in (BM25Index(TEXTS), BM25Index.of_queries(TEXTS, [query])):
        [(first, _), *_] = bm25.rank(query, len(TEXTS))
        assert first == index and sum(bm25.explain(query, index).values()) == pytest.approx(1)


def test_characters_stand_for_a_short_query_alone_and_only_if_no_text_has_a_term_of_it() -> None:
    texts = ["猫", "狗", "猫狗"]
    for query, indices in (
        ("猫狗", [2]),
        ("狗猫", [2, 0, 1]),
        ("狗猫 x", [2, 0, 1]),
        ("猫狗 x", [2]),
        ("狗猫鱼狗", []),
    ):
        for bm25 in (BM25Index(texts), BM25Index.of_queries(texts, [query])):
            assert [index for index, _ in bm25.rank(query, 3)] == indices


def test_punctuation_and_digits_of_these_scripts_end_a_word() -> None:
    assert terms("ဆိုး။ ကောင်း") == terms("ဆိုး") + terms("ကောင်း") and terms("៥០៕ก") == ["៥០", "ก"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("हिन्दी में बिल्ली", ["हिन्दी", "में", "बिल्ली"]), ("قِطّة سوداء", ["قِطّة", "سوداء"]),
        ("검은 고양이가", ["검은", "고양", "양이", "이가"]), ("猫とネコ", ["猫と", "とネ", "ネコ"]),
        ("Ärger2 χθές", ["ärger2", "χθές"]), ("བོད་ཡིག", ["བ", "ད", "ཡ", "ག"]),
    ],
)  # fmt: skip
def test_other_scripts_have_the_terms_of_before(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("cafe", "Le Café noir"), ("café", "the cafe"), ("CAFE\u0301", "café"), ("123", "第１２３号 １２３"),
        ("ＡＢＣ", "abc"), ("strasse", "die Straße"), ("STRASSE", "straße"), ("ガム", "ｶﾞﾑ"), ("ﬁne", "fine"),
        ("istanbul", "İstanbul"),
        ("Đa nang", "Đà Nẵng"), ("Microsoft", "Microsoft™ Word"), ("l'amour", "l´amour"), ("🍕", "we ate🍕🍕"),
        ("👍🏽", "👍"), ("❤", "I ❤️ it"), ("🇩🇪", "made in 🇩🇪"), ("φωσ", "φως"),
    ],
)  # fmt: skip
def test_case_accents_and_widths_do_not_matter(query: str, text: str) -> None:
    for bm25 in (BM25Index([text, "other words"]), BM25Index.of_queries([text, "other words"], [query])):
        assert [index for index, _ in bm25.rank(query, 2)] == [0]
        assert sum(bm25.explain(query, 0).values()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("ガ", "カ"), ("は", "ば"), ("и", "й"), ("क", "कि"), ("가", "각"), ("🇩🇪", "🇫🇷"), ("👍", "👎"), ("2", "²³"),
        ("ا", "آ"),
    ],
)  # fmt: skip
def test_other_letters_are_other_words(query: str, text: str) -> None:
    assert not BM25Index([text, "x"]).rank(query, 2)


@pytest.mark.parametrize("text", ["´", "x ´ y", "l´amour", "¨a", "Ǻ", "n̈", "👨‍👩‍👧", "❤️", "ﷺ", "１½", "ᾼ", "ŉ"])
def test_folding_twice_is_folding_once(text: str) -> None:
    folded = fold_text(text)
    assert fold_text(folded) == folded and not any(term[0] in "\u0301\u0308\ufe0f" for term in terms(folded))
