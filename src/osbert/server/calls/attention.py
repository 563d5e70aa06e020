"""POST /v1/attention: the attention weights of all heads for a text or a pair, in the format of the page."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from pydantic import Field

from osbert.errors import UserError
from osbert.server.calls.contract import Call, Item, Items, RequestFields, Results, require_fit
from osbert.server.calls.models import ServerModel
from osbert.server.calls.schemas import Refusal, Reply, Request

TOKENS = 512
"""Most tokens of a text for a model of BERT-base's size; see WORK for larger ones."""
WORK = 12 * 768 * TOKENS**2
"""Most layers x width x tokens^2 of a request: the size of the attention weights grows with it."""


class AttentionRequest(Request, title="Attention"):
    """A text, or a pair of texts."""

    reads: ClassVar[tuple[str, ...]] = ("text", "pair")

    text: str
    pair: str | None = Field(default=None, description="The second text of a pair.")


class AttentionAnswer(Reply, title="AttentionMaps"):
    """What /v1/attention answers: what TextAttention.record returns, which the page draws (docs/analysis.md)."""

    __qualname__ = "AttentionMaps"

    attention: dict[str, Any]


class AttentionItem(Item):
    """A request for attention weights, which takes as long as many predictions."""

    __slots__ = ()

    @property
    def tokens(self) -> int:
        """About the number of tokens that a prediction could read in the same time."""
        return 16 * super().tokens


class AttentionCall(Call):
    """Computes the attention weights of a text."""

    what = "show attention (/v1/attention)"
    request = AttentionRequest
    reply = AttentionAnswer

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return one item, the text as a sequence. Raises Refusal (422) if it is too long or cannot be read."""
        from osbert.inference.explain import encode_texts  # torch: in workers alone

        texts = [text for text in (values["text"], values["pair"]) if text is not None]
        try:
            sequence = encode_texts(model.engine, texts)
        except UserError as error:
            raise Refusal(422, str(error), field="pair" if values["pair"] is not None else "text") from error
        item = require_fit(AttentionItem(sequence, (sequence.example,)), "text", length=model.engine.packer.length)
        sizes = model.engine.learner.backbone.architecture
        # WORK = layers x width x tokens^2, solved for the tokens.
        most = min(TOKENS, math.isqrt(WORK // (sizes.layers * sizes.width)))
        if len(sequence.example) > most:
            what = f"The attention of at most {most:,} tokens is shown: the text has {len(sequence.example):,}."
            raise Refusal(422, what, field="text")
        return [item]

    def read(self, model: ServerModel, items: Items, option: Any) -> Results:
        from osbert.analysis.attention import read_attention

        backbone = model.engine.learner.backbone
        return [read_attention(backbone, item.value, model.name).record() for item in items]

    def fields(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> dict[str, Any]:
        return {"attention": results[0]}
