"""Preprocessing: images to pixels, augmentation, text cleaning, tokenizers, masking, crops."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prolip.preprocessing.augmentation import Augmentation as Augmentation
    from prolip.preprocessing.augmentation import augment as augment
    from prolip.preprocessing.image_views import ImageViews as ImageViews
    from prolip.preprocessing.image_views import compute_mean_color as compute_mean_color
    from prolip.preprocessing.image_views import crop_image as crop_image
    from prolip.preprocessing.image_views import draw_image_view as draw_image_view
    from prolip.preprocessing.image_views import keep_patches as keep_patches
    from prolip.preprocessing.image_views import occlude_box as occlude_box
    from prolip.preprocessing.images import ImagePreprocessing as ImagePreprocessing
    from prolip.preprocessing.images import normalize as normalize
    from prolip.preprocessing.images import preprocess as preprocess
    from prolip.preprocessing.images import read_image as read_image
    from prolip.preprocessing.images import resize_and_crop as resize_and_crop
    from prolip.preprocessing.masking import draw_patch_indices as draw_patch_indices
    from prolip.preprocessing.masking import mask_tokens as mask_tokens
    from prolip.preprocessing.standalone_tokenizer import (
        make_standalone_tokenizer as make_standalone_tokenizer,
    )
    from prolip.preprocessing.text_cleaning import clean_text as clean_text
    from prolip.preprocessing.text_cropping import crop_text as crop_text
    from prolip.preprocessing.text_cropping import draw_text_view as draw_text_view
    from prolip.preprocessing.tokenizer import Tokenizer as Tokenizer
    from prolip.preprocessing.tokenizer import TokenizerConfig as TokenizerConfig
    from prolip.preprocessing.tokenizer import add_mask_token as add_mask_token
    from prolip.preprocessing.tokenizer_builders import build_clip_tokenizer as build_clip_tokenizer
    from prolip.preprocessing.tokenizer_builders import read_clip_merges as read_clip_merges
    from prolip.preprocessing.tokenizer_builders import train_bpe as train_bpe
    from prolip.preprocessing.tokenizer_builders import train_word_level as train_word_level
    from prolip.preprocessing.words import collect_words as collect_words
else:
    from prolip.lazy import export_lazily

    __getattr__, __dir__, __all__ = export_lazily(
        __name__,
        {
            "augmentation": ["Augmentation", "augment"],
            "image_views": [
                "ImageViews",
                "compute_mean_color",
                "crop_image",
                "draw_image_view",
                "keep_patches",
                "occlude_box",
            ],
            "images": ["ImagePreprocessing", "normalize", "preprocess", "read_image", "resize_and_crop"],
            "masking": ["draw_patch_indices", "mask_tokens"],
            "standalone_tokenizer": ["make_standalone_tokenizer"],
            "text_cleaning": ["clean_text"],
            "text_cropping": ["crop_text", "draw_text_view"],
            "tokenizer": ["Tokenizer", "TokenizerConfig", "add_mask_token"],
            "tokenizer_builders": [
                "build_clip_tokenizer",
                "read_clip_merges",
                "train_bpe",
                "train_word_level",
            ],
            "words": ["collect_words"],
        },
    )
