"""The paths of Hugging Face's text-embeddings-inference (TEI) and Inference API, whose clients work unchanged."""
