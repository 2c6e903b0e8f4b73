"""A vector database of embeddings, and an index with measured recall."""
