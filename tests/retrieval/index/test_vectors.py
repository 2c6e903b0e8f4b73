"""Tests of vectors whose squared L2 distance is CSD."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prolip.measures.public import csd_matrix
from prolip.retrieval.index.vectors import extract_means, make_item_vectors, make_query_vectors, vector_size


@pytest.mark.parametrize("dim", [1, 15, 16, 64, 511])
def test_squared_distance_is_csd_minus_query_trace(draw, dim):
    queries, items = draw(5, dim), draw(7, dim)
    left = make_query_vectors(queries.mean.numpy()).astype(np.float64)
    right = make_item_vectors(items.mean.numpy(), items.uncertainty.numpy()).astype(np.float64)
    found = np.square(left[:, None] - right).sum(-1) + queries.uncertainty.numpy()[:, None]
    np.testing.assert_allclose(found, csd_matrix(queries, items).numpy(), rtol=1e-5)


def test_inner_product_is_that_of_the_means(draw):
    queries, items = draw(5, 10), draw(7, 10)
    found = (
        make_query_vectors(queries.mean.numpy())
        @ make_item_vectors(items.mean.numpy(), items.uncertainty.numpy()).T
    )
    np.testing.assert_allclose(found, (queries.mean @ items.mean.T).numpy(), atol=1e-6)


def test_extract_means_round_trip(draw):
    z = draw(6, 20)
    vectors = make_item_vectors(z.mean.numpy(), z.uncertainty.numpy())
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(extract_means(vectors, 20), z.mean.numpy().astype(np.float32))
    np.testing.assert_allclose(np.square(vectors[:, 20]), z.uncertainty.numpy(), rtol=3e-7)


@given(st.integers(1, 5000))
def test_vector_size_is_the_least_multiple_of_16(dim):
    assert vector_size(dim) % 16 == 0
    assert dim + 1 <= vector_size(dim) < dim + 17
