"""A tokenizer, its packer, and documents in its words."""

from packed_texts import make_documents, packer, text, tokenizer

__all__ = ["make_documents", "packer", "text", "tokenizer"]
