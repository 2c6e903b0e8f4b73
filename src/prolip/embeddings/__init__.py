"""Embedding of data sets into Gaussians, and their storage."""
