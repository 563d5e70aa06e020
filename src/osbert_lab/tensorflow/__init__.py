"""google-research/bert's checkpoints of TensorFlow, read without TensorFlow."""
