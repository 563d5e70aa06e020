"""Puts the doctests of docstrings into blocks of code on the site: in Markdown `>>>` is a quotation in a quotation."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Doctests(griffe.Extension):
    """The extension that mkdocs.yml names."""

    def on_object(self, *, obj: griffe.Object, **context: Any) -> None:
        """Change the docstring of an object, if it has one with a doctest."""
        if obj.docstring and ">>> " in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Return a docstring with each of its doctests in a block of code."""
    paragraphs = re.split(r"\n\s*\n", text)
    return "\n\n".join(f"```pycon\n{one}\n```" if one.startswith(">>> ") else one for one in paragraphs)
