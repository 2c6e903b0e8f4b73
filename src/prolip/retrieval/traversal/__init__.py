"""Traversal from an image's nearest caption to its most general one, over captions in memory or on disk."""
