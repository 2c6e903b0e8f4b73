"""Pooling and digests of encoders."""

import numpy as np
import torch

from prolip.weights.encoders.base import find_tokens, hash_files, pool_map, pool_tokens


def test_pool_map_is_mean_and_largest_mean_of_cells(generator):
    x = torch.randn(2, 3, 6, 9, generator=generator)
    y = pool_map(x)
    for row in range(2):
        for channel in range(3):
            plane = x[row, channel].numpy()
            cells = [plane[2 * i : 2 * i + 2, 3 * j : 3 * j + 3].mean() for i in range(3) for j in range(3)]
            np.testing.assert_allclose(y[row, channel], plane.mean(), atol=1e-6)
            np.testing.assert_allclose(y[row, 3 + channel], max(cells), atol=1e-6)


def test_pool_map_of_a_small_map_uses_its_cells(generator):
    x = torch.randn(1, 2, 1, 2, generator=generator)
    torch.testing.assert_close(pool_map(x), torch.cat([x.mean((2, 3)), x.amax((2, 3))], dim=1))


def test_pool_tokens_ignores_padding(generator):
    x = torch.randn(2, 5, 3, generator=generator)
    is_token = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]).bool()
    expected = torch.stack([torch.cat([rows.mean(0), rows.amax(0)]) for rows in (x[0, :3], x[1])])
    torch.testing.assert_close(pool_tokens(x, is_token), expected)
    torch.testing.assert_close(pool_tokens(x[1:]), expected[1:])


def test_find_tokens_leaves_one_token_in_a_text_without_any():
    ids = torch.tensor([[5, 0, 7, 0], [0, 0, 0, 0]])
    assert find_tokens(ids, 0).tolist() == [[True, False, True, False], [True, False, False, False]]


def test_hash_files_depends_on_content_order_and_settings(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"one")
    b.write_bytes(b"two")
    digests = [hash_files([a, b], 1), hash_files([b, a], 1), hash_files([a, b], 2), hash_files([a], 1)]
    assert len(set(digests)) == 4
    assert hash_files([a, b], 1) == digests[0]
    a.write_bytes(b"onet")
    b.write_bytes(b"wo")
    assert hash_files([a, b], 1) != digests[0]
