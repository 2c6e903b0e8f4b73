"""Adapters for the weight formats of the ProLIP release, open_clip and transformers."""
