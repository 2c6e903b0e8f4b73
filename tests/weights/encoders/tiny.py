"""Tiny encoders of every kind, written to a folder or made in memory, with random weights."""

import hashlib
import json

import numpy as np
import torch
from torch import nn

from prolip.preprocessing.tokenizer_builders import train_word_level

WORDS = [
    "a", "red", "green", "blue", "big", "small", "circle", "square", "star", "above", "below", "the", "of", "and",
    "left", "right",
]  # fmt: skip
SIZE = 24
PROCESSOR = {
    "size": {"height": SIZE, "width": SIZE},
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "resample": 2,
}


class Images:
    """Mean colors of a grid of 3 x 3 cells, projected at random: a Python object as image encoder."""

    name, digest, image_size = "cells", "1", SIZE

    def __init__(self, dim=24, scale=1.0):
        self._projection = np.random.default_rng(0).normal(size=(27, dim)) * scale

    def encode(self, batch):
        cells = batch.reshape(len(batch), 3, SIZE // 3, 3, SIZE // 3, 3).mean((2, 4)).reshape(len(batch), -1)
        return (cells / 255) @ self._projection


class Texts:
    """Random vectors of words, added: a Python object as text encoder."""

    name, digest = "words", "1"

    def __init__(self, dim=16):
        self._dim = dim

    def encode(self, batch):
        return np.stack([self._embed(text) for text in batch])

    def _embed(self, text):
        rows = [self._draw(word) for word in text.split()] or [np.zeros(self._dim)]
        return np.sum(rows, axis=0)

    def _draw(self, word):
        seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest())
        return np.random.default_rng(seed).normal(size=self._dim)


class _Convolutions(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, channels, 4, stride=4), nn.Tanh(), nn.Conv2d(channels, channels, 1)
        )

    def forward(self, pixels):
        return self.layers(pixels)


class _Tokens(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.embedding, self.layer = nn.Embedding(vocabulary, width), nn.Linear(width, width)

    def forward(self, ids, mask):
        x = self.embedding(ids) * mask[..., None]
        return torch.tanh(self.layer(x + x.sum(1, keepdim=True) / mask.sum(1, keepdim=True)[..., None]))


def export(module, inputs, path, names, dynamic):
    """Write a module as an ONNX graph."""
    axes = tuple(dict.fromkeys(dynamic, torch.export.Dim.DYNAMIC) for _ in inputs)
    torch.onnx.export(
        module.eval(), inputs, path, dynamo=True, dynamic_shapes=axes, verbose=False, input_names=names,
        output_names=["features"],
    )  # fmt: skip


def write_image_graph(folder, seed=0, channels=8):
    """An ONNX graph from pixels to a map, and its preprocessing; returns the graph's path."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    export(_Convolutions(channels), (torch.zeros(2, 3, SIZE, SIZE),), folder / "image.onnx", ["pixels"], [0])
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    return folder / "image.onnx"


def write_text_graph(folder, seed=0, width=8):
    """An ONNX graph from ids to tokens, and its tokenizer; returns the graph's path."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer()
    torch.manual_seed(seed)
    ids = torch.ones(2, 5, dtype=torch.int64)
    export(
        _Tokens(tokenizer.config.vocab_size, width), (ids, torch.ones_like(ids)), folder / "text.onnx",
        ["input_ids", "attention_mask"], [0, 1],
    )  # fmt: skip
    tokenizer.save(folder / "tokenizer.json")
    return folder / "text.onnx"


def make_tokenizer():
    """Word level: [PAD] 0, [MASK] 1, [UNK] 2, then the words."""
    return train_word_level([" ".join(WORDS)], context_length=16)


def write_bert(folder, seed=0, vocabulary=WORDS):
    """A BERT with a WordPiece tokenizer, in the hub's layout."""
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *vocabulary]
    backend = Tokenizer(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]",
    )  # fmt: skip
    wrapped.save_pretrained(str(folder))
    config = transformers.BertConfig(
        vocab_size=len(tokens), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32,
    )  # fmt: skip
    torch.manual_seed(seed)
    transformers.BertModel(config).save_pretrained(str(folder))
    return folder


def write_vit(folder, seed=0):
    """A ViT with its preprocessing, in the hub's layout."""
    import transformers

    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=SIZE,
        patch_size=8,
    )  # fmt: skip
    torch.manual_seed(seed)
    transformers.ViTModel(config).save_pretrained(str(folder))
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR | {"do_resize": True}))
    return folder


def write_resnet(folder, seed=0):
    """A ResNet with its preprocessing, in the hub's layout."""
    import transformers

    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"
    )
    torch.manual_seed(seed)
    transformers.ResNetModel(config).save_pretrained(str(folder))
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    return folder
