"""A tokenizer with documents in its words; examples, batches and tiny models."""

from packed_texts import make_documents, packer, text, tokenizer
from tiny_models import make_backbone, make_batch, make_examples

__all__ = ["make_documents", "packer", "text", "tokenizer", "make_examples", "make_batch", "make_backbone"]
