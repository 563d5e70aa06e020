"""The paths of other APIs, whose clients work unchanged: OpenAI, Jina, Cohere and text-embeddings-inference (TEI)."""
