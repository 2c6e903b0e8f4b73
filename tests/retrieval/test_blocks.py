"""The nearest of a block against loops by the definition, in float64."""

import pytest
import torch
from torch.nn.functional import normalize

from prolip.retrieval import blocks
from prolip.retrieval.blocks import nearest_in, nearest_to_steps


def similarity(mean, caption, by):
    if by == "cosine":
        return float(mean @ caption.mean / caption.mean.norm())
    return float(1 - ((mean - caption.mean).square().sum() + caption.uncertainty) / 2)


@pytest.mark.parametrize("by", ["csd", "cosine"])
def test_the_nearest_of_a_block(draw, by):
    queries, captions = draw(5, 6), draw(20, 6, high=-2)
    captions.mean.mul_(torch.linspace(0.9, 1.1, 20)[:, None])  # float16 means have no unit length
    values, rows = nearest_in(queries, captions.mean_trace(), 3, by)
    for query, found, value in zip(queries, rows, values, strict=True):
        near = torch.tensor([similarity(query.mean, caption, by) for caption in captions])
        assert found.tolist() == near.argsort(descending=True)[:3].tolist()
        torch.testing.assert_close(value - value[0], (near[found] - near[found[0]]).to(value.dtype))


@pytest.mark.parametrize("by", ["csd", "cosine"])
@pytest.mark.parametrize("elements", [1, 50, 2**18])
def test_the_nearest_to_steps(draw, monkeypatch, by, elements):
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", elements)
    starts, ends, captions = draw(4, 5).mean, draw(4, 5).mean, draw(15, 5, low=-4, high=-1)
    values, rows = nearest_to_steps(starts, ends, captions.mean_trace(), 7, by)
    for n in range(4):
        for step in range(7):
            point = starts[n] + step / 7 * (ends[n] - starts[n])
            near = [similarity(normalize(point, dim=0), caption, by) for caption in captions]
            assert rows[n, step] == max(range(15), key=near.__getitem__)
            assert values[n, step] == pytest.approx(max(near) * float(point.norm()))
    apart = [
        nearest_to_steps(starts, ends, captions[part].mean_trace(), 7, by)
        for part in (slice(9), slice(9, 15))
    ]
    torch.testing.assert_close(torch.maximum(apart[0][0], apart[1][0]), values)
