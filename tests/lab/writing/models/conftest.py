"""Examples, batches and tiny Transformers."""

from tiny_models import make_backbone, make_batch, make_examples

__all__ = ["make_examples", "make_batch", "make_backbone"]
