"""Procedural scenes: pictures and captions whose true ambiguity is known."""
