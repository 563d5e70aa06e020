"""A picture with a sentence of plain words above it and one of caution below."""

from __future__ import annotations

from html import escape


def explained(picture: str, *, plain: str, caution: str) -> str:
    """Return a <figure> with what it shows in plain words under its title, and below what must not be read into it."""
    head, body = picture.split("</figcaption>", 1)
    inner, tail = body.rsplit("</figure>", 1)
    said = f"</figcaption><p>{escape(plain)}</p>"
    return f'{head}{said}{inner}<p class="soft">{escape(caution)}</p></figure>{tail}'
