"""CLIP and SigLIP with tiny random weights, in folders with exactly the files that they have on the hub."""

import json

import tokenizers
import transformers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from tests.weights.formats.test_huggingface import build

LETTERS = "abcdefghijklmnopqrstuvwxyz"
MERGES = ["r e", "re d</w>", "t h", "th e</w>", "c i", "ci r", "cir c", "circ l", "circl e</w>", "b l"]
SPECIAL = ("<|startoftext|>", "<|endoftext|>")
CLIP_FILES = {
    "config.json", "merges.txt", "model.safetensors", "preprocessor_config.json", "special_tokens_map.json",
    "tokenizer.json", "tokenizer_config.json", "vocab.json",
}  # fmt: skip
SIGLIP_FILES = {
    "config.json", "model.safetensors", "preprocessor_config.json", "special_tokens_map.json", "tokenizer.json",
    "tokenizer_config.json",
}  # fmt: skip
"""Besides these google/siglip-base-patch16-224 has spiece.model, which repeats tokenizer.json."""


def write_layout(kind, folder):
    """Write a model, its processor and its tokenizer. Returns the folder."""
    folder.mkdir(parents=True)
    build(kind, folder)
    (_write_clip_files if kind == "clip" else _write_siglip_files)(folder)
    names = {path.name for path in folder.iterdir()}
    assert names == (CLIP_FILES if kind == "clip" else SIGLIP_FILES), names
    return folder


def _write_clip_files(folder):
    vocabulary = [*LETTERS, *(f"{letter}</w>" for letter in LETTERS), *(m.replace(" ", "") for m in MERGES)]
    ids = {token: n for n, token in enumerate([*vocabulary, *SPECIAL])}
    _write(folder / "vocab.json", ids)
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(MERGES) + "\n")
    tokenizer = tokenizers.Tokenizer(
        models.BPE(
            ids, [tuple(m.split()) for m in MERGES], unk_token=SPECIAL[1], continuing_subword_prefix="",
            end_of_word_suffix="</w>", fuse_unk=False,
        )
    )  # fmt: skip
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    pattern = Regex(
        r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern, "removed", invert=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.post_processor = processors.RobertaProcessing(
        (SPECIAL[1], ids[SPECIAL[1]]),
        (SPECIAL[0], ids[SPECIAL[0]]),
        add_prefix_space=False,
        trim_offsets=False,
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {
        "unk_token": SPECIAL[1],
        "bos_token": SPECIAL[0],
        "eos_token": SPECIAL[1],
        "pad_token": SPECIAL[1],
    }
    _write(folder / "special_tokens_map.json", names)
    _write(
        folder / "tokenizer_config.json",
        {
            **names, "add_prefix_space": False, "errors": "replace", "do_lower_case": True, "model_max_length": 10,
            "tokenizer_class": "CLIPTokenizer",
        },
    )  # fmt: skip
    _write(
        folder / "preprocessor_config.json",
        {
            "crop_size": 26, "do_center_crop": True, "do_normalize": True, "do_resize": True,
            "feature_extractor_type": "CLIPFeatureExtractor", "image_mean": [0.48145466, 0.4578275, 0.40821073],
            "image_std": [0.26862954, 0.26130258, 0.27577711], "resample": 3, "size": 26,
        },
    )  # fmt: skip


def _write_siglip_files(folder):
    words = ["▁a", "▁the", "▁red", "▁blue", "▁circle", "▁star"]
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
    pieces += [(word, -3.0) for word in words] + [(letter, -6.0) for letter in LETTERS]
    pieces += [(f"<extra_{n}>", -20.0) for n in range(64 - len(pieces))]
    tokenizer = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=2))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)]
    )
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["</s>", "<unk>", "<pad>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"eos_token": "</s>", "pad_token": "</s>", "unk_token": "<unk>"}
    _write(folder / "special_tokens_map.json", names)
    _write(
        folder / "tokenizer_config.json",
        {
            **names, "additional_special_tokens": [], "clean_up_tokenization_spaces": True, "do_lower_case": True,
            "model_input_names": ["input_ids"], "model_max_length": 10, "sp_model_kwargs": {},
            "tokenizer_class": "SiglipTokenizer",
        },
    )  # fmt: skip
    _write(
        folder / "preprocessor_config.json",
        {
            "do_normalize": True, "do_rescale": True, "do_resize": True, "image_mean": [0.5, 0.5, 0.5],
            "image_processor_type": "SiglipImageProcessor", "image_std": [0.5, 0.5, 0.5],
            "processor_class": "SiglipProcessor", "resample": 3, "rescale_factor": 0.00392156862745098,
            "size": {"height": 26, "width": 26},
        },
    )  # fmt: skip


def read_features(kind, folder, images, texts):
    """Features of images and texts by transformers alone: its processor, its tokenizer, its model."""
    import torch

    model = transformers.AutoModel.from_pretrained(folder).eval()
    processor = transformers.AutoImageProcessor.from_pretrained(folder, use_fast=False)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    pixels = torch.from_numpy(processor(images, return_tensors="np")["pixel_values"]).float()
    padding = "longest" if kind == "clip" else "max_length"
    tokens = tokenizer(
        [text.lower() for text in texts], padding=padding, truncation=True, max_length=10, return_tensors="pt"
    )
    mask = {"attention_mask": tokens["attention_mask"]} if kind == "clip" else {}
    with torch.no_grad():
        found = (
            model.get_image_features(pixel_values=pixels),
            model.get_text_features(input_ids=tokens["input_ids"], **mask),
        )
    return [one if isinstance(one, torch.Tensor) else one.pooler_output for one in found]


def _write(path, content):
    path.write_text(json.dumps(content, indent=2))
