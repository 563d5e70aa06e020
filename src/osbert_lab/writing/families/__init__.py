"""Hugging Face's families of encoder-decoders: entry points of `osbert.interop.huggingface.families` lead to them."""
