"""The operation counts against torch's own counter, and the command on the smallest size."""

from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import towers
from benchmarks.__main__ import main
from prolip.model.prolip import ProLIP
from prolip.preprocessing.masking import draw_patch_indices


def count_flops(work):
    """torch counts the products of attention only where they are written out."""
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


@pytest.mark.parametrize("uncertainty", ["token", "none", "multihead"])
def test_image_flops_equal_those_counted_by_torch(nano, uncertainty, generator):
    config = nano.config.with_uncertainty(uncertainty)
    model = ProLIP(config).init_weights(generator)
    pixels = torch.randn(3, 3, 32, 32)
    assert count_flops(lambda: model.encode_image(pixels)) == 3 * towers.image_flops(config.image, 32)
    patch_indices = draw_patch_indices(3, 16, 0.25, generator)
    assert count_flops(lambda: model.encode_image(pixels, patch_indices)) == 3 * towers.image_flops(
        config.image, 32, 4
    )


@pytest.mark.parametrize("uncertainty", ["token", "none", "multihead"])
def test_text_flops_equal_those_counted_by_torch(nano, uncertainty, generator):
    config = nano.config.with_uncertainty(uncertainty)
    model = ProLIP(config).init_weights(generator)
    ids = torch.full((3, 9), 2)
    assert count_flops(lambda: model.encode_text(ids)) == 3 * towers.text_flops(config.text, 32, 9)


def test_image_flops_of_mlp_stem(nano, generator):
    image = replace(nano.config.image, stem="mlp", patch_bias=True)
    model = ProLIP(replace(nano.config, image=image)).init_weights(generator)
    assert count_flops(lambda: model.encode_image(torch.zeros(1, 3, 32, 32))) == towers.image_flops(image, 32)


def test_towers_command(capsys, run_benchmark):
    result = run_benchmark("towers", "--size", "nano", "--batch", "2", "--repeats", "2")["result"]
    assert result["gigaflop_per_second"] > 0
    assert set(result["overhead"]) == {"image, [UNC]", "image, multi-head"}
    assert result["overhead"]["image, [UNC]"]["operations"] > 0
    assert all(row["fraction_of_rate"] > 0 for row in result["works"].values())
    assert "training step" in result["works"]
    capsys.readouterr()
    main(["towers", "--size", "nano", "--batch", "2", "--repeats", "1", "--no-train"])
    printed = capsys.readouterr().out
    assert "nano, batch 2" in printed
    assert "image, [UNC], two images: " in printed
    assert "training step" not in printed


def test_run_rejects_bad_arguments():
    with pytest.raises(ValueError, match="--batch must be at least 2, not 1"):
        towers.run(batch=1)
    with pytest.raises(ValueError, match="huge"):
        towers.run(size="huge")
