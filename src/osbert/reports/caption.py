"""Pictures with an explanation in plain words above and a caution below."""

from __future__ import annotations

from html import escape


def explain_picture(picture: str, *, plain: str, caution: str) -> str:
    """Return a <figure> with its explanation under the title, and below it how it must not be read."""
    head, body = picture.split("</figcaption>", 1)
    inner, tail = body.rsplit("</figure>", 1)
    explanation = f"</figcaption><p>{escape(plain)}</p>"
    return f'{head}{explanation}{inner}<p class="soft">{escape(caution)}</p></figure>{tail}'
