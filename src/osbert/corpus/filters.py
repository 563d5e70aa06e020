"""Filters of documents in text from the web, which work in tasks applies (--executor)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Language = Literal["", "en", "de", "fr", "es", "it", "pt", "nl", "ru", "uk", "zh", "ja", "ko", "el", "he", "th"]


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Filters of documents; by default all are kept."""

    language: Language = ""
    """Keep only documents in this language; "" for any."""
    quality: bool = False
    """Drop documents that do not look like prose: menus, tables, lists of words."""
    near_duplicates: bool = False
    """Drop near-duplicates of earlier documents, detected by MinHash over 5-grams of words."""
