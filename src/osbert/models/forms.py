"""What heads read and return: pooled states, layers of a frozen encoder, and the forms of outputs. No torch.

The form of a head's outputs determines the Hugging Face class, the ONNX outputs and the decoding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from osbert.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from osbert.data.batch import Batch


Writing = Literal["masked", "shifted"]
"""Where a generated piece is predicted: at a [MASK] in its position, or at the token before it."""
Form = Literal["", "sequence", "tokens", "span", "choice", "vectors", "text", "mlm", "nsp", "order", "replaced"]
"""The outputs of a head, for B sequences with N tokens:

- sequence: scores (B, K) from the pooled states;
- tokens: scores (N, K) from the tokens' states;
- span: scores (N, 2) of being an answer's first and last token, from the tokens' states;
- choice: one score (B, 1) for each choice of a record, from the pooled states;
- vectors: vectors (B, D) of texts, without scores;
- text: scores (N, V) of the piece after each token, for text generation;
- mlm, nsp, order: those of pretraining, for pieces, next sentences and the order of sentences;
- replaced: one logit (N, 1) for each token of having been replaced, from the tokens' states;
- "": none of these. Such a head is stored, but has no Hugging Face class and no ONNX file.
"""

PER_TOKEN: tuple[Form, ...] = ("tokens", "span", "text", "mlm", "replaced")
"""The forms whose outputs are per token (N, K)."""

Values = Literal["classes", "labels", "numbers", "relevance"]
"""The kind of the K outputs: logits of classes, exactly one of which is correct; logits of independent labels; numbers;
or one logit of the relevance of a text to another."""

Distillation = Literal["kl", "margin_mse"]
"""The loss of vectors that learn a teacher's scores: of their distribution, or of their differences."""
VectorLoss = Literal["in_batch", "cosent", "kl", "margin_mse"]
"""The loss of vectors: negatives of the step, scores of pairs, or a teacher's scores."""
RankingLoss = Literal["softmax", "bce"]
"""The loss of a reranker: over a query's list of candidates (softmax), or over each candidate (bce)."""


Features = Literal[
    "none", "last", "second-to-last", "sum-last-four", "concat-last-four", "concat-ends", "sum-all", "embeddings", "mix"
]
"""none: no features, the encoder learns. The sums are weighted, by learnt weights that are shares of 1; so is the mix,
which has the embeddings among its layers, and a learnt factor (ELMo's). concat-ends: the embeddings and the last layer
side by side, as in CoVe (McCann et al. 2017, section 4)."""


def feature_layers(features: Features, layers: int) -> range:
    """Return the numbers of the layers taken, for an encoder of so many; 0 is the embedding output."""
    top = layers + 1
    return {
        "none": range(0),
        "last": range(layers, top),
        "second-to-last": range(layers - 1, layers),
        "sum-last-four": range(max(1, layers - 3), top),
        "concat-last-four": range(max(1, layers - 3), top),
        "concat-ends": range(0, top, max(1, layers)),
        "sum-all": range(1, top),
        "embeddings": range(1),
        "mix": range(top),
    }[features]


Pooling = Literal["cls", "mean", "max", "weighted", "mean_sqrt", "last"]
"""cls: the summary's state. mean and max: over all tokens, [CLS] and [SEP] included. weighted: a mean in which
token i (from 1) has weight i, the position-weighted mean of SGPT (Muennighoff 2022, section 3.1.1) for causal
models. mean_sqrt: the sum over all tokens, divided by the square root of their number. last: the last token's state."""

SparsePooling = Literal["splade", "splade_sum", "splade_log", "splade_log_sum"]
"""Sparse vectors, with a weight for each piece of the vocabulary: from the logits of the language head, log(1 + relu)
and the maximum over all tokens, or their sum; log: the logarithm of 1 plus that once more."""

MultiPooling = Literal["colbert"]
"""Many vectors a text, one of each token that counts: its state after the model's Dense parts (late interaction)."""

VectorKind = Literal["dense", "sparse", "multi", "tokens"]
"""Kinds of vectors: one of numbers (D,) a text; one of weights (V,), most of which are 0; many a text, compared
token by token; the states of all tokens."""


def vector_kind(pooling: str) -> VectorKind:
    """Return the kind of the vectors that a pooling gives.

    >>> vector_kind("cls+mean"), vector_kind("splade_sum"), vector_kind("colbert")
    ('dense', 'sparse', 'multi')
    """
    if pooling in get_args(SparsePooling):
        return "sparse"
    if pooling in get_args(MultiPooling):
        return "multi"
    return "tokens" if pooling == "tokens" else "dense"


def split_pooling(pooling: str) -> list[Pooling]:
    """Return the poolings of a name such as "cls+mean", whose vectors are concatenated. Raises UserError if unknown.

    >>> split_pooling("cls+mean")
    ['cls', 'mean']
    """
    names = pooling.split("+")
    if unknown := [name for name in names if name not in get_args(Pooling)]:
        raise UserError(
            f"There is no pooling {unknown[0]!r}: there are {', '.join(get_args(Pooling))}.", code="invalid-value"
        )
    return names  # type: ignore[return-value]


def pool_states(states: Tensor, batch: Batch, pooling: Pooling, summaries: Tensor, *, skip: int = 0) -> list[Tensor]:
    """Return a vector (..., D) for each of the B sequences from the states (N, ..., D) of their tokens.

    `summaries` (B,): the summary token of each sequence (`Backbone.summaries`). `skip`: tokens at the start of each
    sequence that are not pooled, but for the last token.
    """
    if pooling == "cls" and not skip:
        return list(states[summaries].unbind())
    sequences = [sequence[min(skip, len(sequence) - 1) :] for sequence in states.split(list(batch.lengths))]
    if pooling == "cls":
        # The first token that is pooled, unless the summary is a later one.
        indices = (summaries - batch.starts - skip).tolist()
        return [sequence[max(0, index)] for sequence, index in zip(sequences, indices, strict=True)]
    if pooling == "mean":
        return [sequence.mean(dim=0) for sequence in sequences]
    if pooling == "mean_sqrt":
        return [sequence.sum(dim=0) / len(sequence) ** 0.5 for sequence in sequences]
    if pooling == "max":
        return [sequence.amax(dim=0) for sequence in sequences]
    if pooling == "last":
        return [sequence[-1] for sequence in sequences]
    # Positions count from 0, SGPT's weights from 1. Tokens that are not pooled count.
    weights = (batch.positions + 1).to(states.dtype).split(list(batch.lengths))
    weights = [weight[-len(sequence) :] for weight, sequence in zip(weights, sequences, strict=True)]
    return [
        (sequence.movedim(0, -1) * weight).sum(dim=-1) / weight.sum()
        for weight, sequence in zip(weights, sequences, strict=True)
    ]


def pool_texts(states: Tensor, batch: Batch, pooling: str, summaries: Tensor, *, skip: int = 0) -> list[Tensor]:
    """Return a vector (..., P * D) of each sequence by P poolings joined by "+", as `pool_states` does by one."""
    import torch

    several = [pool_states(states, batch, name, summaries, skip=skip) for name in split_pooling(pooling)]
    return several[0] if len(several) == 1 else [torch.cat(parts, dim=-1) for parts in zip(*several, strict=True)]


def pair_blocks(u: Any, v: Any) -> list[Any]:
    """Return the features of a pair of unit vectors (..., D), in blocks: u, v, |u - v|, uv and the cosine.

    The first three are Sentence-BERT's (Reimers and Gurevych 2019, section 3), the fourth InferSent's. The cosine
    (..., 1) is the sum of the fourth; a layer trained on few pairs would not learn this sum. Arrays may be numpy's or
    torch's, so that training and decoding share the code.

    >>> import numpy as np
    >>> [block.tolist() for block in pair_blocks(np.array([1.0, 0.0]), np.array([0.6, 0.8]))]
    [[1.0, 0.0], [0.6, 0.8], [0.4, 0.8], [0.6, 0.0], [0.6]]
    """
    product = u * v
    return [u, v, abs(u - v), product, product.sum(-1)[..., None]]
