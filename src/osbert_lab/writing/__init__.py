"""Models that write texts: encoder-decoders, and encoders trained to write; tasks, objectives, search and calls."""
