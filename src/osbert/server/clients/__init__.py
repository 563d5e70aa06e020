"""The paths of other APIs, whose clients work unchanged: OpenAI, Jina and Cohere."""
