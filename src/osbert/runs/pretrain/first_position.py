"""Where positions begin in RoBERTa and BART: at 0, or behind the padding id of the corpus's tokenizer."""

from __future__ import annotations

import dataclasses
from typing import Any

from osbert.errors import Problems
from osbert.text.file_tokenizer import AnyTokenizer


def fit_first_position(settings: Any, tokenizer: AnyTokenizer) -> tuple[Any, list[str]]:
    """Return settings whose first position, unless it is 0, is the padding id + 1, and a remark if that changes it."""
    first = getattr(settings.model, "first_position", 0)
    # At 0 the tokenizer is not asked: GPT's has no padding.
    if not first or first == (wanted := tokenizer.pad + 1):
        return settings, []
    remark = (
        f"model.first_position is {wanted} instead of {first}: positions begin behind the padding id, which is "
        f"{tokenizer.pad} in the corpus's tokenizer."
    )
    return dataclasses.replace(settings, model=settings.model.replace(first_position=wanted)), [remark]


def check_first_position(model: Any, tokenizer: AnyTokenizer, problems: Problems) -> None:
    """Add a problem if the first position is neither 0 nor the padding id + 1: transformers would count otherwise."""
    first = getattr(model, "first_position", 0)
    if first and first != tokenizer.pad + 1:
        problems.add(
            f"model.first_position is {first}, but positions begin behind the padding id, which is {tokenizer.pad} "
            f"({tokenizer.vocabulary[tokenizer.pad]}) in the corpus's tokenizer. Set model.first_position = "
            f"{tokenizer.pad + 1}, or 0 to begin at 0.",
            code="invalid-setting",
        )
