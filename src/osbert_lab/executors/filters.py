"""Detects the language of documents, and whether they read well. Rules, no models; nothing is downloaded.

The language is detected by script and by the fraction of its frequent short words. The signs of quality are those
rules of Gopher (Rae et al. 2021, arXiv 2112.11446, table A1) that hold for any language with spaces.
"""

from __future__ import annotations

import re

from osbert.corpus.state import Filters
from osbert_lab.languages import LEAST, SHORT_WORDS

SAMPLE = 20_000
"""Characters at the beginning of a text that the language is detected from."""

FEWEST_WORDS, MOST_WORDS = 50, 100_000
SHORTEST, LONGEST = 3.0, 10.0
"""Limits of the mean length of a word, in characters."""

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


def rejecting_filter(filters: Filters, text: str) -> str:
    """Return the filter that rejects a document, "" if none; near-duplicates are not detected here."""
    if filters.language and language_of(text) != filters.language:
        return "language"
    return "quality" if filters.quality and not reads_well(text) else ""


def language_of(text: str) -> str:
    """Return the code of the language of a text; "" if it is unknown."""
    sample = text[:SAMPLE]
    words = _WORD.findall(sample.lower())
    letters = sum(map(len, words))
    if not letters:
        return ""
    script_counts = {language: len(script.findall(sample)) for language, script in _SCRIPTS.items()}
    if (
        script_counts["ja"] * 10 > script_counts["zh"] + script_counts["ja"]
    ):  # Japanese has Chinese characters between its own
        script_counts["ja"] += script_counts.pop("zh")
    script = max(script_counts, key=lambda language: script_counts[language])
    # More than half of the letters are of a script with a single language.
    if script_counts[script] * 2 > letters:
        return script
    word_rates = {
        language: sum(word in short for word in words) / len(words) for language, short in SHORT_WORDS.items()
    }
    best = max(word_rates, key=lambda language: word_rates[language])
    return best if word_rates[best] >= LEAST else ""


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
