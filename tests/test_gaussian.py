import dataclasses

import numpy as np
import pytest
import torch
from torch.utils import _pytree

from prolip.gaussian import Gaussian, MeanTrace


def test_quantities_are_functions_of_the_log_variance(draw):
    z = draw(3, 5)
    torch.testing.assert_close(z.var, z.log_var.exp())
    torch.testing.assert_close(z.std.square(), z.var)
    torch.testing.assert_close(z.uncertainty, torch.stack([torch.diag(v).trace() for v in z.var]))
    assert (z.shape, z.dim, len(z)) == ((3, 5), 5, 3)


def test_gaussian_is_frozen(draw):
    z = draw(2, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        z.mean = torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("index", "shape"),
    [
        (0, (3, 4)),
        (slice(1, None), (1, 3, 4)),
        ((0, 1), (4,)),
        ((slice(None), 1), (2, 4)),
        ((..., 0), (2, 4)),
        (None, (1, 2, 3, 4)),
        ([1, 0, 1], (3, 3, 4)),
        (torch.tensor([True, False]), (1, 3, 4)),
        (torch.tensor([[True, False, True], [False, False, True]]), (3, 4)),
        ((..., None), (2, 3, 1, 4)),
    ],
)
def test_indexing_applies_to_batch_axes_only(draw, index, shape):
    z = draw(2, 3, 4)
    assert z[index].mean.shape == shape
    assert z[index].log_var.shape == shape


def test_indexing_the_last_axis_raises(draw):
    with pytest.raises(IndexError):
        draw(2, 4)[0, 1]


def test_rows_keep_their_values(draw):
    z = draw(4, 3)
    assert torch.equal(z[2].mean, z.mean[2])
    assert torch.equal(z[torch.tensor([3, 1])].log_var, z.log_var[[3, 1]])
    assert [row.mean.shape for row in z] == [(3,)] * 4, "iterating ends"


def test_a_single_gaussian_has_no_length(draw):
    with pytest.raises(TypeError, match="no length"):
        len(draw(3))
    with pytest.raises(TypeError, match="no length"):
        list(draw(3))


def test_cat_and_stack_undo_indexing(draw):
    z = draw(5, 3)
    for joined in (Gaussian.cat([z[:2], z[2:]]), Gaussian.stack([z[i] for i in range(5)])):
        assert torch.equal(joined.mean, z.mean)
        assert torch.equal(joined.log_var, z.log_var)


def test_cat_rejects_other_shapes(draw):
    with pytest.raises(ValueError, match="dimensions differ"):
        Gaussian.cat([draw(2, 3), draw(2, 4)])
    with pytest.raises(ValueError, match="at least one"):
        Gaussian.stack([])
    with pytest.raises(ValueError, match=r"Gaussian\.stack"):
        Gaussian.cat([draw(3), draw(3)])


def test_to_keeps_log_var_at_float32_or_better(draw):
    z = draw(2, 3)
    assert z.to(torch.float32).log_var.dtype == torch.float32
    half = z.to(torch.bfloat16)
    assert (half.mean.dtype, half.log_var.dtype) == (torch.bfloat16, torch.float64)
    with pytest.raises(TypeError, match="int64"):
        z.to(torch.long)
    assert z.to("meta").mean.is_meta
    assert z.to("meta", torch.float16).log_var.is_meta


def test_samples_have_the_stated_moments(generator):
    z = Gaussian(torch.tensor([1.0, -2.0]), torch.tensor([0.0, -3.0]))
    samples = z.sample(generator, 200_000)
    torch.testing.assert_close(samples.mean(0), z.mean, atol=0.01, rtol=0)
    torch.testing.assert_close(samples.var(0), z.var, atol=0.02, rtol=0)


def test_sample_uses_the_generator_and_has_gradients(draw):
    z = draw(2, 3)
    first, second = (z.sample(torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, z.sample(torch.Generator().manual_seed(8)))
    leaf = Gaussian(z.mean.requires_grad_(), z.log_var.requires_grad_())
    leaf.sample(torch.Generator().manual_seed(7), 4).sum().backward()
    assert torch.equal(z.mean.grad, torch.full_like(z.mean, 4.0))
    assert (z.log_var.grad != 0).all()


def test_sample_draws_noise_in_the_dtype_of_log_var(draw):
    half = draw(2, 3, dtype=torch.float32).to(torch.bfloat16)
    full = Gaussian(half.mean.float(), half.log_var)
    first, second = (z.sample(torch.Generator().manual_seed(7)) for z in (half, full))
    assert torch.equal(first, second)


def test_detach_shares_values_without_gradients(draw):
    z = draw(2, 3)
    z.mean.requires_grad_()
    copy = z.detach()
    assert torch.equal(copy.mean, z.mean)
    assert not copy.mean.requires_grad


def test_numpy_gives_both_arrays_detached(draw):
    z = draw(3, 4)
    z.mean.requires_grad_()
    arrays = z.numpy()
    mean, log_var = arrays
    assert mean is arrays.mean
    assert log_var is arrays.log_var
    assert mean.dtype == log_var.dtype == np.float64
    np.testing.assert_array_equal(mean, z.mean.tolist())
    np.testing.assert_array_equal(log_var, z.log_var.tolist())


def test_numpy_widens_means_below_float32(draw):
    z = draw(2, 3, dtype=torch.float32)
    arrays = z.to(torch.bfloat16).numpy()
    assert arrays.mean.dtype == arrays.log_var.dtype == np.float32
    np.testing.assert_array_equal(arrays.mean, z.mean.bfloat16().float().numpy())
    np.testing.assert_array_equal(arrays.log_var, z.log_var.numpy())


@pytest.mark.parametrize(
    "convert",
    [
        np.asarray,
        lambda z: np.asarray(z, dtype=np.float32),
        lambda z: np.array([z, z]),
        lambda z: np.stack([z, z]),
        lambda z: z.mean.numpy() @ z,
    ],
)
@pytest.mark.parametrize("index", [slice(None), 0])
def test_a_gaussian_is_refused_as_an_array(draw, convert, index):
    with pytest.raises(TypeError, match=r"z\.mean\.numpy\(\).* z\.numpy\(\)"):
        convert(draw(3, 3)[index])


@pytest.mark.parametrize(
    ("convert", "advice"),
    [
        (torch.as_tensor, r"z\.mean and z\.log_var"),
        (torch.tensor, r"z\.mean and z\.log_var"),
        (lambda z: torch.stack([z, z]), r"use Gaussian\.stack"),
        (lambda z: torch.cat([z, z]), r"use Gaussian\.cat"),
        (torch.exp, r"exp of torch takes tensors.* pass z\.mean or z\.log_var"),
        (torch.nn.functional.normalize, r"normalize of torch.* pass z\.mean"),
        (torch.nn.Linear(3, 3), r"pass z\.mean"),
    ],
)
def test_a_gaussian_is_refused_as_a_tensor(draw, convert, advice):
    with pytest.raises(TypeError, match=advice):
        convert(draw(3, 3))


def test_check_shapes_reads_no_data():
    broken = Gaussian(torch.full((2, 3), float("nan")), torch.zeros(2, 3))
    assert broken.check_shapes() is broken
    meta = Gaussian(torch.zeros(2, 3, device="meta"), torch.zeros(2, 3, device="meta"))
    assert meta.check_shapes() is meta


def test_a_point_has_no_variance(draw, generator):
    z = Gaussian.point(draw(2, 3).mean.bfloat16())
    assert z.log_var.dtype == torch.float32
    assert torch.equal(z.uncertainty, torch.zeros(2))
    assert torch.equal(z.sample(generator), z.mean.float())
    assert z.check() is z


def test_gaussian_is_a_pytree_node(draw):
    z = draw(2, 3)
    doubled = _pytree.tree_map(lambda t: 2 * t, {"images": z, "other": [z]})
    assert isinstance(doubled["images"], Gaussian)
    assert torch.equal(doubled["other"][0].log_var, 2 * z.log_var)
    shapes = _pytree.tree_map(lambda t: t.shape, z)
    assert shapes.mean == (2, 3), "leaves need not be tensors"
    assert "torch.Size" in repr(shapes)
    keys = [_pytree.keystr(path) for path, _ in _pytree.tree_flatten_with_path(z)[0]]
    assert keys == [".mean", ".log_var"]
    assert isinstance(_pytree.tree_map(lambda t: t, z.mean_trace()), MeanTrace)


def test_gaussian_survives_full_graph_compilation(draw):
    def shift(z):
        return Gaussian(z.mean + 1, z.log_var[..., :]).check()[0], z.uncertainty

    z = draw(2, 3)
    compiled = torch.compile(shift, fullgraph=True, backend="aot_eager")
    (got, trace), (wanted, _) = compiled(z), shift(z)
    torch.testing.assert_close(got.mean, wanted.mean)
    torch.testing.assert_close(trace, z.uncertainty)


@pytest.mark.parametrize(
    ("mean", "log_var", "error", "message"),
    [
        (torch.zeros(2, 3), torch.zeros(2, 4), ValueError, r"\(2, 3\).*\(2, 4\)"),
        (torch.zeros(()), torch.zeros(()), ValueError, "shape"),
        (torch.zeros(2, 3), torch.zeros(2, 3).half(), TypeError, "float16.*float32"),
        (torch.zeros(2, 3).long(), torch.zeros(2, 3), TypeError, "int64"),
        ([[1.0]], torch.zeros(1, 1), TypeError, "list"),
        (torch.zeros(2, 3), torch.zeros(2, 3, device="meta"), ValueError, "cpu.*meta"),
        (torch.tensor([[1.0, float("nan")]]), torch.zeros(1, 2), ValueError, r"1 of 2.*\(0, 1\) is nan"),
        (torch.tensor([[1.0, float("inf")]]), torch.zeros(1, 2), ValueError, "mean"),
        (torch.zeros(1, 2), torch.tensor([[0.0, float("nan")]]), ValueError, "log_var"),
        (torch.zeros(1, 2), torch.tensor([[0.0, float("inf")]]), ValueError, "log_var"),
        (torch.zeros(1, 2), torch.tensor([[0.0, 100.0]]), ValueError, "log_var must be at most 80"),
        (
            torch.zeros(1).double(),
            torch.full((1,), 650.0).double(),
            ValueError,
            "log_var must be at most 600",
        ),
        (torch.zeros(2, 0), torch.zeros(2, 0), ValueError, "D at least 1"),
        (torch.zeros(1, 2).to(torch.float8_e4m3fn), torch.zeros(1, 2), TypeError, "16 bits"),
    ],
)
def test_check_names_the_invalid_part(mean, log_var, error, message):
    with pytest.raises(error, match=message) as caught:
        Gaussian(mean, log_var).check("images")
    assert str(caught.value).startswith("images: ")


def test_repr_is_short(draw):
    z = Gaussian(torch.zeros(2, 4), torch.log(torch.tensor([[0.25], [0.5]])).expand(2, 4))
    assert repr(z) == "Gaussian(2 x 4, float32, uncertainty 1 to 2)"
    assert repr(z[0]) == "Gaussian(4, float32, uncertainty 1)"
    assert repr(z[:0]) == "Gaussian(0 x 4, float32)"
    assert repr(z.to("meta")) == "Gaussian(2 x 4, float32, meta)"
