"""Traversal from an image's nearest caption to its most general one, in memory or on disk."""
