"""Preprocessing: images to pixels, augmentation, text cleaning, tokenizers, masking."""
