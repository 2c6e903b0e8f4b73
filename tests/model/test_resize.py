"""Other image sizes and context lengths: what is kept is kept to the bit, what is new is interpolated."""

import pytest
import torch

import prolip
from prolip.model.resize import resize_image_positions, resize_model, resize_text_positions
from prolip.preprocessing.tokenizer_builders import train_word_level
from tests.golden import FIXTURES


def linear_interpolation(values, count):
    """Half-pixel centres, edges repeated: align_corners=False by hand."""
    out = []
    for i in range(count):
        x = (i + 0.5) * len(values) / count - 0.5
        x = min(max(x, 0.0), len(values) - 1.0)
        low = min(int(x), len(values) - 2)
        out.append(values[low] + (x - low) * (values[low + 1] - values[low]))
    return torch.stack(out)


def test_text_positions_are_extended_as_in_longprolip(generator):
    """64 -> 256: the first 20 and the two of [UNC], [CLS] stay, 44 become 236."""
    positions = torch.randn(66, 8, generator=generator)
    found = resize_text_positions(positions, 2, 256)
    assert found.shape == (258, 8)
    assert torch.equal(found[:20], positions[:20])
    assert torch.equal(found[-2:], positions[-2:])
    torch.testing.assert_close(
        found[20:-2], linear_interpolation(positions[20:64], 236), rtol=1e-4, atol=1e-5
    )


def test_shorter_context_truncates_positions(generator):
    positions = torch.randn(66, 8, generator=generator)
    assert torch.equal(resize_text_positions(positions, 2, 10), torch.cat([positions[:10], positions[-2:]]))
    assert torch.equal(resize_text_positions(positions, 0, 10), positions[:10])


def test_too_short_to_stretch():
    with pytest.raises(ValueError, match="21 is too short to be extended: it must be at least 22"):
        resize_text_positions(torch.zeros(23, 4), 2, 64)


def test_a_grid_keeps_its_tokens_and_its_shape(generator):
    """A plane stays a plane away from the edges; [CLS] and [UNC] are not touched."""
    rows, columns = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    plane = torch.stack([rows, columns], dim=-1).reshape(64, 2)
    front = torch.randn(2, 2, generator=generator)
    found = resize_image_positions(torch.cat([front, plane]), 2, 16)
    assert torch.equal(found[:2], front)
    grid = found[2:].reshape(16, 16, 2)[4:-4, 4:-4]
    centres = (torch.arange(16.0) + 0.5) / 2 - 0.5
    wanted = torch.stack(torch.meshgrid(centres, centres, indexing="ij"), dim=-1)[4:-4, 4:-4]
    torch.testing.assert_close(grid, wanted, rtol=0, atol=1e-4)


def test_rows_and_columns_are_not_exchanged():
    first_row = torch.zeros(4, 4)
    first_row[0] = 1.0
    found = resize_image_positions(first_row.reshape(16, 1), 0, 8).reshape(8, 8)
    assert found[0].min() > 0.9
    assert found[-1].abs().max() < 0.1


def test_a_constant_grid_stays_constant():
    for grid in (3, 7, 14):
        torch.testing.assert_close(
            resize_image_positions(torch.full((36, 5), 0.7), 0, grid), torch.full((grid**2, 5), 0.7)
        )


def test_load_resizes(tmp_path):
    tokenizer = train_word_level(["a red circle above a blue star"], context_length=24)
    model = prolip.create("miniature", tokenizer)
    model.save_pretrained(tmp_path)
    other = prolip.load(tmp_path, image_size=64, context_length=48, device="cpu")
    assert other.config.image.preprocessing.size == 64
    assert other.image.positions.shape == (2 + 64, 64)
    assert other.config.text.tokenizer.context_length == other.tokenizer.config.context_length == 48
    assert torch.equal(other.text.positions[:20], model.text.positions[:20])
    assert other.embed_images(torch.zeros(3, 50, 70, dtype=torch.uint8)).shape == (1, 64)
    assert other.tokenize("a " * 100).shape == (1, 48)
    assert other.embed_texts("a " * 100).shape == (1, 64)
    # short texts mean what they meant: their positions, and those of [UNC] and [CLS], are the same
    torch.testing.assert_close(
        other.embed_texts("a red star").mean, model.embed_texts("a red star").mean, rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_resize_keeps_the_dtype(dtype, generator):
    positions = torch.randn(66, 8, generator=generator).to(dtype)
    assert resize_text_positions(positions, 2, 256).dtype == dtype
    assert resize_image_positions(positions, 2, 4).dtype == dtype


def test_resize_to_the_same_length_changes_nothing(generator):
    positions = torch.randn(66, 8, generator=generator)
    assert torch.equal(resize_text_positions(positions, 2, 64), positions)
    assert torch.equal(resize_image_positions(positions, 2, 8), positions)
    short = torch.randn(12, 8, generator=generator)  # too short to be stretched, but nothing is to be done
    assert torch.equal(resize_text_positions(short, 2, 10), short)


def test_models_without_added_tokens():
    """CLIP's text tower has no [UNC], [CLS]: its last two positions are words'."""
    model = prolip.load(FIXTURES / "open_clip" / "clip", device="cpu")
    shorter = resize_model(model, context_length=7)
    assert torch.equal(shorter.text.positions, model.text.positions[:7])
    larger = resize_model(model, image_size=40)
    assert torch.equal(larger.image.positions[0], model.image.positions[0])
    assert larger.image.positions.shape == (1 + 25, 32)


def test_resize_to_the_same_size_returns_the_model(nano):
    assert resize_model(nano) is nano
    assert resize_model(nano, image_size=32, context_length=16) is nano
