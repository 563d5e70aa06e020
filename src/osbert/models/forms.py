"""The forms that a head's outputs can have: what others' classes, ONNX files and decoding go by."""

from __future__ import annotations

from typing import Literal

Form = Literal["", "sequence", "tokens", "span", "choice", "vectors", "text", "mlm", "nsp", "order", "replaced"]
"""What a head's outputs are, for B sequences of N tokens:

- sequence: scores (B, K) from the pooled states;
- tokens: scores (N, K) from the tokens' states;
- span: scores (N, 2) of being an answer's first and last token, from the tokens' states;
- choice: one score (B, 1) for each choice of a record, from the pooled states;
- vectors: vectors (B, D) of texts, without scores;
- text: scores (N, V) of the piece after each token, by which a text is written piece by piece;
- mlm, nsp, order: those of pretraining, over pieces, next sentences and the order of sentences;
- replaced: one score (N, 1) for each token, of not being the one of the text, from the tokens' states;
- "": none of these. Such a head is kept, but it has no class of others' and no ONNX file.
"""

PER_TOKEN: tuple[Form, ...] = ("tokens", "span", "text", "mlm", "replaced")
"""The forms whose outputs are per token (N, K)."""

Values = Literal["classes", "labels", "numbers", "relevance"]
"""What the K outputs are: scores of classes, of which one is right; of labels, each right or not; numbers; or one
score, a logit, of how relevant a text is to another."""

RankingLoss = Literal["softmax", "bce"]
"""By what a reranker learns: its query's list of candidates, or each candidate by itself."""
