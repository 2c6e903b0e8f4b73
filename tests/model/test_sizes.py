"""Parameter counts against SPEC section 3, the paper's table and RELEASE-FORMAT 1.2, on meta tensors."""

import pytest

from prolip.model.prolip import ProLIP
from prolip.model.sizes import SIZES, get_config
from prolip.preprocessing.tokenizer import TokenizerConfig
from prolip.weights.formats import release

SIGLIP = TokenizerConfig(vocab_size=32100, context_length=64, pad_id=1, mask_id=32000)
CLIP = TokenizerConfig(vocab_size=49408, context_length=77, pad_id=49407, end_id=49407)


def count(config):
    return sum(p.numel() for p in ProLIP(config).parameters())


def added(name, tokens, uncertainty):
    config = get_config(name, tokens)
    return count(config.with_uncertainty(uncertainty)) - count(config.with_uncertainty("none"))


@pytest.mark.parametrize(
    ("name", "unc", "multihead"),
    [
        ("ViT-B-32", 0.66e6, 20.7e6),
        ("ViT-B-16", 0.66e6, 20.7e6),
        ("ViT-B-16-768", 1.18e6, 28.9e6),
        ("ViT-L-16", 1.38e6, 40.0e6),
        ("ViT-L-14", 1.38e6, 40.0e6),
    ],
)
def test_cost_of_uncertainty(name, unc, multihead):
    """SPEC section 3: W E + E + 2 W a tower for [UNC]; two blocks a tower and one E x E map for the multi-head."""
    assert added(name, SIGLIP, "token") == pytest.approx(unc, abs=0.005e6)
    assert added(name, SIGLIP, "multihead") == pytest.approx(multihead, abs=0.05e6)


@pytest.mark.parametrize(
    ("name", "tokens", "base"),
    [
        ("ViT-B-32", CLIP, 151.7e6),
        ("ViT-B-16", CLIP, 150.0e6),
        ("ViT-B-16-768", SIGLIP, 197.3e6),
        ("ViT-L-16", CLIP, 428.5e6),
        ("ViT-L-14", CLIP, 428.4e6),
    ],
)
def test_the_papers_base_parameters(name, tokens, base):
    """The paper's "Base param" holds one more W x E projection, the image tower's, than a deterministic model needs."""
    size = SIZES[name]
    found = count(get_config(name, tokens).with_uncertainty("none")) + size.image.width * size.embed_dim
    assert found == pytest.approx(base, abs=0.15e6)


def released(embed_dim, vision, text, **more):
    return {
        "embed_dim": embed_dim,
        "init_logit_bias": -10,
        "vision_cfg": {"embed_unc": True, "init_unc_bias": -10, **vision},
        "text_cfg": {"hf_tokenizer_name": "timm/ViT-B-16-SigLIP", **text},
        **more,
    }


SO400M = {"width": 1152, "layers": 27, "mlp_ratio": 3.7362}
RELEASED = {
    "B-16": (released(768, {}, {}), 197_923_586),
    "B-16-long": (released(768, {}, {"context_length": 256}), 198_071_042),
    "L-16": (
        released(
            1024,
            {"width": 1024, "layers": 24, "image_size": 256},
            {"width": 1024, "heads": 16, "layers": 24},
        ),
        642_814_978,
    ),
    "SO400M-14": (
        released(1152, {**SO400M, "head_width": 72, "patch_size": 14}, {**SO400M, "heads": 16}),
        866_286_434,
    ),
    "H-14": (
        released(
            1024,
            {"width": 1280, "layers": 32, "head_width": 80, "patch_size": 14},
            {
                "width": 1024,
                "heads": 16,
                "layers": 24,
                "context_length": 77,
                "vocab_size": 49408,
                "hf_tokenizer_name": None,
            },
            quick_gelu=True,
        ),
        988_478_466,
    ),
}


@pytest.mark.parametrize("name", RELEASED)
def test_the_releases_parameters(name):
    values, expected = RELEASED[name]
    assert count(release.parse_config(values)) == expected


def test_the_release_b16_has_311_tensors():
    assert len(ProLIP(release.parse_config(RELEASED["B-16"][0])).state_dict()) == 311


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("ViT-B-16-768", "B-16"),
        ("ViT-B-16-768-long", "B-16-long"),
        ("ViT-L-16-1024", "L-16"),
        ("ViT-SO400M-14", "SO400M-14"),
    ],
)
def test_sizes_equal_those_of_the_release(ours, theirs):
    """Text: its map from mean to log-variance is E x E, ours from [UNC] W x E: the same number where W = E."""
    assert count(get_config(ours, SIGLIP)) == RELEASED[theirs][1]


def test_the_release_h14_is_ours():
    assert count(get_config("ViT-H-14", CLIP)) == RELEASED["H-14"][1]


def test_miniature_has_few_parameters():
    """MINIATURE.md: 243k parameters."""
    tokens = TokenizerConfig(vocab_size=54, context_length=24, pad_id=0)
    assert count(get_config("miniature", tokens)) == pytest.approx(243e3, rel=0.01)


def test_the_named_sizes_in_full():
    """Heads, patches and pixels don't show in counts, or hardly."""
    found = {
        name: (s.image.width, s.image.layers, s.image.heads, s.patch_size, s.image_size, s.text.width, s.text.layers,
               s.text.heads, s.context_length, s.embed_dim)
        for name, s in SIZES.items()
    }  # fmt: skip
    assert found == {
        "ViT-B-32": (768, 12, 12, 32, 224, 512, 12, 8, 64, 512),
        "ViT-B-16": (768, 12, 12, 16, 224, 512, 12, 8, 64, 512),
        "ViT-B-16-768": (768, 12, 12, 16, 224, 768, 12, 12, 64, 768),
        "ViT-B-16-768-long": (768, 12, 12, 16, 224, 768, 12, 12, 256, 768),
        "ViT-L-16": (1024, 24, 16, 16, 224, 768, 12, 12, 64, 768),
        "ViT-L-14": (1024, 24, 16, 14, 224, 768, 12, 12, 64, 768),
        "ViT-L-16-1024": (1024, 24, 16, 16, 256, 1024, 24, 16, 64, 1024),
        "ViT-SO400M-14": (1152, 27, 16, 14, 224, 1152, 27, 16, 64, 1152),
        "ViT-H-14": (1280, 32, 16, 14, 224, 1024, 24, 16, 77, 1024),
        "small": (256, 6, 4, 16, 112, 256, 4, 4, 32, 256),
        "miniature": (64, 3, 4, 8, 48, 64, 2, 4, 32, 64),
        "nano": (32, 2, 2, 8, 32, 32, 2, 2, 16, 32),
    }
    assert get_config("miniature", SIGLIP).init.log_var == -7.5
    assert get_config("nano", SIGLIP).init.log_var == -10.0


def test_an_unknown_size_names_the_known_ones():
    with pytest.raises(ValueError, match="size 'ViT-Z' is unknown; the known ones are ViT-B-32"):
        get_config("ViT-Z", SIGLIP)


def test_the_context_is_the_sizes_own():
    assert get_config("ViT-B-16-768-long", SIGLIP).text.tokenizer.context_length == 256
