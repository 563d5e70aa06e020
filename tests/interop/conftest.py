"""A small architecture, learners on it, and a pretraining model of transformers."""

from theirs import make_learner, ours, ours_say, pretraining, sizes, theirs_say, tokenizer

__all__ = ["make_learner", "ours", "ours_say", "pretraining", "sizes", "theirs_say", "tokenizer"]
