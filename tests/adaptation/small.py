"""Small models and feature pairs for tests of adaptation."""

import numpy as np
import torch

from prolip.data.feature_pairs import CAPTIONS, IMAGES, OFFSETS, TEXTS, write_meta
from prolip.files import write_json
from prolip.model.config import ModelConfig
from prolip.model.frozen_config import EncoderConfig, FrozenImageConfig, FrozenTextConfig, HeadConfig
from prolip.model.prolip import ProLIP
from prolip.preprocessing.images import ImagePreprocessing
from prolip.weights.encoders.python_object import make_byte_tokenizer

DIM = 8


def make_model(means, loss=None):
    """A model with frozen towers on 8 features: "learned" means of a likelihood model, or "encoder" means."""
    head = HeadConfig(
        components=DIM, means=means, hidden=4 if means == "learned" else 0, width_hidden=4, dropout=0.0
    )
    encoders = [EncoderConfig(name=f"python:{name}", digest=name * 16, dim=DIM) for name in "01"]
    tokenizer = make_byte_tokenizer()
    config = ModelConfig(
        embed_dim=DIM,
        image=FrozenImageConfig(preprocessing=ImagePreprocessing(size=8), encoder=encoders[0], head=head),
        text=FrozenTextConfig(tokenizer=tokenizer.config, encoder=encoders[1], head=head),
        contrastive_loss=loss or ("likelihood" if means == "learned" else "sigmoid"),
    )
    return ProLIP(config, tokenizer).init_weights(torch.Generator().manual_seed(0)).eval()


def write_pairs(folder, num_images, seed, *, noise=1.0, replace_image=None):
    """Feature pairs of 2 views, with 1 to 3 captions whose features are those of the image plus noise."""
    from prolip.data.feature_pairs import FeaturePairs

    rng = np.random.RandomState(seed)
    images = rng.randn(num_images, 2, DIM)
    images[..., 0] += 1.5  # what is near this direction fits many items
    counts = rng.randint(1, 4, num_images)
    own = np.repeat(np.arange(num_images), counts)
    levels = rng.uniform(0.2, 2, (len(own), 1, 1))
    texts = images[own] + noise * levels * rng.randn(len(own), 2, DIM)
    if replace_image is not None:
        images[replace_image] = rng.randn(2, DIM)
    folder.mkdir(parents=True)
    np.save(folder / IMAGES, images.astype(np.float16))
    np.save(folder / TEXTS, texts.astype(np.float16))
    np.save(folder / OFFSETS, np.concatenate([[0], counts.cumsum()]))
    write_json(folder / CAPTIONS, {"captions": [f"caption {row}" for row in range(len(own))]})
    write_meta(folder, f"{seed}-{replace_image}")
    return FeaturePairs(folder)
