"""Pipelines of Hugging Face's Inference API: token classification, question answering, and masks that are filled.

The answers have the form of transformers' pipelines. Entities are groups of words, each labelled by its first piece.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, computed_field

from osbert.inference.pieces import MASK, MaskFill
from osbert.server.calls.contract import Item, Items, RequestFields, Results
from osbert.server.calls.fill_mask import FillCall
from osbert.server.calls.models import PRETRAINED, ServerModel
from osbert.server.calls.predict import AnswerCall, TagCall
from osbert.server.calls.schemas import Texts
from osbert.text.file_tokenizer import AnyTokenizer, FileTokenizer, piece_ids
from osbert_lab.text_embeddings_inference.contract import ParameterRequest, TEICall
from osbert_lab.text_embeddings_inference.vectors import TEIEmbedCall, TEIEmbedRequest

FILLS = 5
"""Pieces for each mask unless `top_k` says otherwise."""
TopK = Field(default=None, ge=1, le=100, description="Number of answers to return, the likeliest.")


class TokenRequest(ParameterRequest):
    """A text or a list of texts in which entities are looked for."""

    reads: ClassVar[tuple[str, ...]] = ("inputs",)

    inputs: str | Texts
    aggregation_strategy: Literal["first"] = Field(
        default="first", description="A word has the label of its first piece, and words are grouped."
    )


class TokenGroup(BaseModel):
    """An entity: the characters [start, end) of the text."""

    entity_group: str
    score: float
    word: str
    start: int
    end: int


class TokenCall(TEICall):
    """The call for entities."""

    what = "tag (/token-classification)"
    needs = "tag"
    call = TagCall()
    request = TokenRequest
    reply = list[TokenGroup] | list[list[TokenGroup]]
    field_names = {"texts": "inputs"}

    def translate(self, values: RequestFields) -> RequestFields:
        return {"texts": list_texts(values["inputs"])}

    def answer(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> Any:
        entities = self.call.fields(model, self.translate(values), items, results)["entities"]
        groups = [
            [
                {
                    "entity_group": entity["type"],
                    "score": entity["probability"],
                    "word": entity["text"],
                    "start": entity["start"],
                    "end": entity["end"],
                }
                for entity in of_text
            ]
            for of_text in entities
        ]
        return groups if isinstance(values["inputs"], list) else groups[0]


class QuestionInputs(BaseModel):
    """A question, and the paragraph in which to find the answer."""

    model_config = ConfigDict(extra="forbid", strict=True)

    question: str
    context: str


class QuestionRequest(ParameterRequest):
    """A question and its paragraph."""

    inputs: QuestionInputs
    top_k: int | None = TopK
    handle_impossible_answer: bool = Field(
        default=False, description="Whether the answer may be empty, if the paragraph holds none."
    )

    def parts(self) -> Iterator[tuple[str, str]]:
        yield "inputs.question", self.inputs.question
        yield "inputs.context", self.inputs.context

    def count(self) -> tuple[str, int]:
        return "inputs", 1


class SpanAnswer(BaseModel):
    """An answer: the characters [start, end) of the paragraph; empty at 0 if there is none."""

    answer: str
    score: float
    start: int
    end: int


class QuestionCall(TEICall):
    """The call for an answer from a paragraph."""

    what = "answer questions (/question-answering)"
    needs = "answer"
    call = AnswerCall()
    request = QuestionRequest
    reply = SpanAnswer | list[SpanAnswer]
    field_names = {"question": "inputs.question", "paragraph": "inputs.context"}

    def translate(self, values: RequestFields) -> RequestFields:
        inputs = values["inputs"]
        return {"question": inputs["question"], "paragraph": inputs["context"], "n_best": None}

    def answer(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> Any:
        fields = self.call.fields(model, self.translate(values), items, results)
        spans = rank_answers(fields["answer"], fields["n_best"], empty=values["handle_impossible_answer"])
        answers = [
            {
                "answer": span["text"],
                "score": span["probability"],
                "start": max(span["start"], 0),
                "end": max(span["end"], 0),
            }
            for span in spans
        ]
        top = values["top_k"] or 1
        return answers[:top] if top > 1 else answers[0]


class FillMaskRequest(ParameterRequest):
    """A text or a list of texts with masks in them."""

    reads: ClassVar[tuple[str, ...]] = ("inputs",)

    inputs: str | Texts
    top_k: int | None = TopK


class MaskAnswer(BaseModel):
    """A piece for a mask, by its text and number, and the text with it."""

    score: float
    token: int
    token_str: str
    sequence: str


class FillMaskCall(TEICall):
    """The call for the likeliest pieces of masks."""

    what = "fill masks (/fill-mask)"
    needs = PRETRAINED.call
    call = FillCall()
    request = FillMaskRequest
    reply: Any = list[MaskAnswer] | list[list[MaskAnswer]] | list[list[list[MaskAnswer]]]
    field_names = {"texts": "inputs", "top": "top_k"}

    def translate(self, values: RequestFields) -> RequestFields:
        return {"texts": list_texts(values["inputs"]), "top": values["top_k"] or FILLS}

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        """Return an item for each text, in which the mask may be spelt [MASK] or as the tokenizer spells it."""
        tokenizer, inputs = model.engine.tokenizer, values["inputs"]
        mask = tokenizer.vocabulary[tokenizer.mask]
        spelt = inputs.replace(mask, MASK) if isinstance(inputs, str) else [text.replace(mask, MASK) for text in inputs]
        return super().items(model, {**values, "inputs": spelt})

    def answer(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> Any:
        tokenizer = model.engine.tokenizer
        fills = [fill_texts(tokenizer, item, masks) for item, masks in zip(items, results, strict=True)]
        return fills if isinstance(values["inputs"], list) else fills[0]


class EncoderRequest(TEIEmbedRequest):
    """Texts for vectors, or with masks: these are filled unless a setting of vectors is given."""

    top_k: int | None = TopK

    @computed_field  # type: ignore[prop-decorator]
    @property
    def fills(self) -> bool:
        """Return whether the masks of the texts are filled."""
        if self.top_k is not None or self.model_fields_set - {"inputs", "top_k"}:
            return self.top_k is not None
        return any(mask in text for text in list_texts(self.inputs) for mask in (MASK, "<mask>"))


class EncoderCall(TEIEmbedCall):
    """The call for a masked-language model at the bare address: it fills masks, and embeds texts without them."""

    what = "fill masks or embed (/inference)"
    needs = PRETRAINED.call
    request = EncoderRequest
    reply: Any = list[list[float]] | FillMaskCall.reply
    masks = FillMaskCall()

    def items(self, model: ServerModel, values: RequestFields) -> list[Item]:
        return self.masks.items(model, values) if values["fills"] else super().items(model, values)

    def option(self, values: RequestFields) -> Hashable:
        return self.masks.option(values) if values["fills"] else super().option(values)

    def read(self, model: ServerModel, items: Items, option: Any) -> Results:
        return self.masks.read(model, items, option) if isinstance(option, int) else super().read(model, items, option)

    def answer(self, model: ServerModel, values: RequestFields, items: Items, results: Results) -> Any:
        if values["fills"]:
            return self.masks.answer(model, values, items, results)
        return super().answer(model, values, items, results)


def list_texts(inputs: str | list[str]) -> list[str]:
    """Return the inputs of a request as a list."""
    return [inputs] if isinstance(inputs, str) else inputs


def rank_answers(
    answer: Mapping[str, Any] | None, spans: Sequence[Mapping[str, Any]], *, empty: bool
) -> list[Mapping[str, Any]]:
    """Return the candidates of an answer, the best first. `empty`: with the one that there is none, if listed.

    >>> ada = {"text": "Ada", "start": 0, "end": 3, "probability": 0.4}
    >>> none = {"text": "", "start": -1, "end": -1, "probability": 0.6}
    >>> [[span["text"] for span in rank_answers(None, [none, ada], empty=empty)] for empty in (False, True)]
    [['Ada'], ['', 'Ada']]
    """
    nothing = next((span for span in spans if span["start"] < 0), {"text": "", "start": 0, "end": 0, "probability": 0})
    if not empty:
        return [span for span in spans if span["start"] >= 0] or [nothing]
    chosen = answer or nothing  # by the threshold of the model
    return [chosen, *(span for span in spans if span != chosen)]


def decoder_of(tokenizer: AnyTokenizer) -> Callable[[list[int]], str]:
    """Return the function from ids of pieces to their text, as transformers' tokenizers write it."""
    if isinstance(tokenizer, FileTokenizer):
        return tokenizer.decode
    from tokenizers.decoders import WordPiece

    word_piece = WordPiece()
    return lambda ids: str(word_piece.decode(tokenizer.tokens(ids)))


def fill_texts(tokenizer: AnyTokenizer, item: Item, masks: Sequence[Sequence[MaskFill]]) -> Any:
    """Return the answers for each mask of a text; of the only mask they are not in a list of their own."""
    ids, numbers = np.array(item.value.ids), piece_ids(tokenizer)
    positions = np.flatnonzero(ids == tokenizer.mask)
    decode = decoder_of(tokenizer)
    answers: list[list[dict[str, Any]]] = []
    for position, fills in zip(positions, masks, strict=True):
        answers.append([])
        for piece, probability in fills:
            ids[position] = numbers[piece]
            read = ids if len(positions) > 1 else ids[~item.value.special]
            sequence, text = decode(read.tolist()), decode([numbers[piece]])
            answers[-1].append({"score": probability, "token": numbers[piece], "token_str": text, "sequence": sequence})
        ids[position] = tokenizer.mask
    return answers if len(answers) > 1 else answers[0]
