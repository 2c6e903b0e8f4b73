"""Nearest and most inclusive items; the way from an image to its most general caption."""
