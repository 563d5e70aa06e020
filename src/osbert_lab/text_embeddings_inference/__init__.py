"""The paths of Hugging Face's text-embeddings-inference (TEI), whose clients work unchanged."""
