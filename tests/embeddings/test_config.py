"""EmbedConfig: what it refuses."""

import pytest

from prolip.embeddings.config import EmbedConfig
from prolip.embeddings.embed import embed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"part_size": 0}, "part_size must be"),
        ({"batch_size": -1}, "batch_size must be"),
        ({"max_bad_fraction": 2}, "max_bad_fraction must be a fraction from 0 to 1, not 2"),
        ({"engine": "spark"}, "engine 'spark' is not one of"),
        ({"precision": "bfloat16"}, "'bfloat16' is not one of"),
        ({"modality": "sounds"}, "'sounds' is not one of"),
        ({"captions": "txt"}, r"write \('txt',\)"),
        ({"engine": "ray", "ray_workers": 0}, "ray_workers must be"),
        ({"engine": "ray", "ray_cpus": 0}, "0 CPUs .* 0 and None"),
        ({"engine": "ray", "ray_gpus": -1}, "0 GPUs.* 1 and -1"),
        ({"decode": "quick"}, "'quick' is not one of"),
        ({"modality": "text", "decode": "fast"}, "decode has no effect with modality text"),
        ({"ray_workers": 2}, "no effect without engine ray"),
    ],
)
def test_embed_config_refuses_invalid_options(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        EmbedConfig(**options)
    with pytest.raises(ValueError, match=message):  # before the model is loaded
        embed("no-model", "no-data", tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_embed_config_makes_tuples():
    assert EmbedConfig(captions=["txt", "json:caption"]) == EmbedConfig(captions=("txt", "json:caption"))


def test_embed_suggests_the_nearest_option(tmp_path):
    with pytest.raises(TypeError, match="did you mean batch_size"):
        embed("no-model", "no-data", tmp_path / "out", batchsize=3)
