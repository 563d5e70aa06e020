"""Filters of documents by language and by simple signs of quality. Rules, no models; nothing is downloaded.

For text from the web. The language is detected by script and by the fraction of its frequent short words. The signs of
quality are those rules of Gopher (Rae et al. 2021, arXiv 2112.11446, table A1) that hold for any language with spaces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Language = Literal["", "en", "de", "fr", "es", "it", "pt", "nl", "ru", "uk", "zh", "ja", "ko", "el", "he", "th"]

SAMPLE = 20_000
"""Characters at the beginning of a text that the language is detected from."""
LEAST = 0.08
"""Lowest fraction of a language's short words in a text; below it the language is unknown."""

FEWEST_WORDS, MOST_WORDS = 50, 100_000
SHORTEST, LONGEST = 3.0, 10.0
"""Limits of the mean length of a word, in characters."""

_SMALL_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "en": "the of and to in is that was for it with as his on be at by he this had not are but from or have an",
        "de": "der die und das den von zu ist mit sich des auf für im dem nicht ein eine als auch es an er hat aus bei",
        "fr": "le la les des et est dans du que une pour qui il au sur par ne se pas plus avec ce son elle sont à été",
        "es": "el los las que y en un una por con para es su al lo como más pero sus fue este ha era del se no",
        "it": "il di che è la un una per non con del della si gli dei al più sono come anche nel alla ha ma le lo",
        "pt": "o os as que e em um uma para com não por mais se na no da do dos é ao como foi mas ele são",
        "nl": "de het een van en in is dat op te zijn voor met die niet aan er om ook als naar bij nog maar ze werd",
        "ru": "и в не на что с по это он как но из у за от так к же бы то его для она они был а",
        "uk": "і в не на що з та до як це він але за від у про для або був є ще так його її вони який",
    }.items()
}
_SCRIPTS = {
    "ja": re.compile(r"[\u3040-\u30ff]"),
    "zh": re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]"),
    "ko": re.compile(r"[\uac00-\ud7af]"),
    "el": re.compile(r"[\u0370-\u03ff]"),
    "he": re.compile(r"[\u0590-\u05ff]"),
    "th": re.compile(r"[\u0e00-\u0e7f]"),
}
_WORD = re.compile(r"[^\W\d_]+")
_BULLETS = ("•", "*", "-", "–", "·", "‣")
_ELLIPSES = ("...", "…")


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Filters of documents; by default all are kept."""

    language: Language = ""
    """Keep only documents in this language; "" for any."""
    quality: bool = False
    """Drop documents that do not look like prose: menus, tables, lists of words."""
    near_duplicates: bool = False
    """Drop near-duplicates of earlier documents, detected by MinHash over 5-grams of words."""

    def reason(self, text: str) -> str:
        """Return the filter that rejects a document, "" if none; near-duplicates are not detected here."""
        if self.language and language_of(text) != self.language:
            return "language"
        return "quality" if self.quality and not reads_well(text) else ""


def language_of(text: str) -> str:
    """Return the code of the language of a text; "" if it is unknown."""
    sample = text[:SAMPLE]
    words = _WORD.findall(sample.lower())
    letters = sum(map(len, words))
    if not letters:
        return ""
    found = {language: len(script.findall(sample)) for language, script in _SCRIPTS.items()}
    if found["ja"] * 10 > found["zh"] + found["ja"]:  # Japanese has Chinese characters between its own
        found["ja"] += found.pop("zh")
    script = max(found, key=lambda language: found[language])
    # More than half of the letters are of a script with a single language.
    if found[script] * 2 > letters:
        return script
    shares = {language: sum(word in small for word in words) / len(words) for language, small in _SMALL_WORDS.items()}
    best = max(shares, key=lambda language: shares[language])
    return best if shares[best] >= LEAST else ""


def reads_well(text: str) -> bool:
    """Return whether a text looks like prose (those rules of Gopher that do not depend on English)."""
    words = text.split()
    if not FEWEST_WORDS <= len(words) <= MOST_WORDS:
        return False
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    signs = text.count("#") + text.count("…") + text.count("...")
    return (
        SHORTEST <= sum(map(len, words)) / len(words) <= LONGEST
        and signs / len(words) <= 0.1
        and sum(line.startswith(_BULLETS) for line in lines) <= 0.9 * len(lines)
        and sum(line.endswith(_ELLIPSES) for line in lines) <= 0.3 * len(lines)
        and sum(any(map(str.isalpha, word)) for word in words) >= 0.8 * len(words)
    )
