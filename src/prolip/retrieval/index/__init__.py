"""Embeddings in a vector database: rows in, an index with measured recall."""
