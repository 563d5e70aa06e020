"""A tiny encoder, a task that it can learn, and a run fine-tuned on it."""

from reviews import encoder, reviews, run, settings, table

__all__ = ["encoder", "reviews", "run", "settings", "table"]
