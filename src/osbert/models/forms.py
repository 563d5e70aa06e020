"""The forms of a head's outputs, which determine the Hugging Face class, the ONNX outputs and the decoding."""

from __future__ import annotations

from typing import Literal

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

RankingLoss = Literal["softmax", "bce"]
"""The loss of a reranker: over a query's list of candidates (softmax), or over each candidate (bce)."""
