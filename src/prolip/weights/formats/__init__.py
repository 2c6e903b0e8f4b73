"""Adapters of foreign weight formats: the ProLIP release, open_clip, transformers."""
