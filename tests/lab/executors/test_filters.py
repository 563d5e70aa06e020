"""Filters keep the language asked for and running text; nothing else changes."""

from __future__ import annotations

import pytest

from osbert.corpus.state import Filters
from osbert_lab.executors.filters import language_of, reads_well, rejecting_filter

TEXTS = {
    "en": "The house stood on a hill above the river, and nobody had lived in it for many years.",
    "de": "Das Haus stand auf einem Hügel über dem Fluss, und niemand hatte seit vielen Jahren in ihm gewohnt.",
    "fr": "La maison se trouvait sur une colline au-dessus de la rivière, et personne ne l'avait habitée.",
    "es": "La casa estaba en una colina sobre el río, y nadie había vivido en ella por muchos años.",
    "it": "La casa si trovava su una collina sopra il fiume, e nessuno ci aveva più vissuto da molti anni.",
    "pt": "A casa ficava em uma colina sobre o rio, e ninguém morava nela havia muitos anos, mas não era triste.",
    "nl": "Het huis stond op een heuvel boven de rivier, en niemand had er in vele jaren gewoond.",
    "ru": "Дом стоял на холме над рекой, и никто не жил в нём уже много лет, но он был как новый.",
    "uk": "Будинок стояв на пагорбі над річкою, і ніхто не жив у ньому багато років, але він був як новий.",
    "zh": "那座房子在河边的山上，很多年没有人住在里面。",
    "ja": "その家は川の上の丘に立っていて、長い間誰も住んでいなかった。",
    "ko": "그 집은 강 위의 언덕에 서 있었고 오랫동안 아무도 살지 않았다.",
    "el": "Το σπίτι βρισκόταν σε έναν λόφο πάνω από το ποτάμι.",
    "he": "הבית עמד על גבעה מעל הנהר ואיש לא גר בו שנים רבות.",
    "th": "บ้านตั้งอยู่บนเนินเขาเหนือแม่น้ำ",
    "": "Xyzzy plugh 42 foo bar baz.",
}


@pytest.mark.parametrize("language", TEXTS)
def test_the_language_is_told(language: str) -> None:
    assert language_of(TEXTS[language]) == language


def test_nothing_has_no_language() -> None:
    assert language_of("") == language_of("1234 !!") == ""


GOOD = "The old house stood on a hill above the river, and nobody lived there. " * 5


@pytest.mark.parametrize(
    ("text", "good"),
    [
        (GOOD, True),
        ("Too short to say anything.", False),
        ("word " * 100_001, False),
        ("a b c d e f " * 20, False),
        ("incomprehensibilities " * 60, False),
        (GOOD.replace("the", "#"), False),
        ("\n".join(f"- {line}" for line in GOOD.split(". ")), False),
        ("\n".join(f"{line}..." for line in GOOD.split(". ")), False),
        ("1850 " * 20 + GOOD, False),
    ],
)  # fmt: skip
def test_quality(text: str, good: bool) -> None:
    assert reads_well(text) is good


def test_each_filter_has_an_effect() -> None:
    assert rejecting_filter(Filters(), "Dies und das.") == ""
    assert rejecting_filter(Filters(language="en"), TEXTS["de"]) == "language"
    assert rejecting_filter(Filters(language="de"), TEXTS["de"]) == ""
    assert rejecting_filter(Filters(quality=True), "Dies und das.") == "quality"
    assert rejecting_filter(Filters(quality=True, language="en"), GOOD) == ""
