"""Retrieval: a vector database of embeddings, search with confidence, and traversal of captions."""
