"""Filtering of image-text pairs: scores, threshold, near-duplicates, and the outputs."""
