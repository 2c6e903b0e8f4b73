"""Rules account for every tensor, in both directions."""

import pytest
import torch

from prolip.weights.formats.rules import convolution, layer, read, reshaped, same, stacked, transposed, write


def test_reading():
    theirs = {
        "a": torch.arange(6.0).reshape(2, 3),
        "b": torch.arange(24.0).reshape(2, 3, 2, 2),
        "c": torch.ones(1, 1, 4),
        "q": torch.zeros(2, 3),
        "k": torch.ones(2, 3),
        "n.weight": torch.ones(2),
        "n.bias": torch.zeros(2),
        "buffer": torch.zeros(1),
    }
    rules = [
        transposed("A", "a"),
        convolution("B", "b", 2),
        reshaped("C", "c", 4),
        stacked("QK", "q", "k"),
        *layer("N", "n"),
    ]
    ours, account = read(rules, theirs, {"buff.*": "no weight"}, "file")
    assert torch.equal(ours["A"], theirs["a"].T)
    assert torch.equal(ours["B"], theirs["b"].reshape(2, 12))
    assert ours["C"].shape == (4,)
    assert torch.equal(ours["QK"], torch.cat([theirs["q"], theirs["k"]]))
    assert account.loaded == ("A", "B", "C", "N.bias", "N.weight", "QK")
    assert account.left == (("buffer", "no weight"),)


def test_writing_is_the_inverse():
    theirs = {"a": torch.randn(2, 3), "b": torch.randn(2, 3, 2, 2), "s": torch.tensor(1.0)}
    rules = [transposed("A", "a"), convolution("B", "b", 2), same("S", "s")]
    ours, _ = read(rules, theirs, {}, "file")
    again = write(rules, ours)
    assert all(torch.equal(again[name], value) for name, value in theirs.items())


def test_what_can_not_be_written_is_refused():
    with pytest.raises(ValueError, match="1 tensors have no place in the format: C"):
        write([reshaped("C", "c", 4)], {"C": torch.ones(4)})
    with pytest.raises(ValueError, match="1 tensors have no place in the format: X"):
        write([same("S", "s")], {"S": torch.ones(4), "X": torch.ones(1)})


def test_a_pattern_must_fit_the_whole_name():
    with pytest.raises(ValueError, match="no place in this kind of model: buffer2"):
        read([], {"buffer2": torch.zeros(1)}, {"buffer": "no weight"}, "file")


def test_long_lists_are_cut():
    with pytest.raises(ValueError, match=r"6 tensors are missing: a0, a1, a2, a3, and 2 more"):
        read([same(f"A{i}", f"a{i}") for i in range(6)], {}, {}, "file")


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [(convolution("B", "b", 2), r"b \(3,\)"), (reshaped("C", "b", 7), r"b \(3,\) can't become C")],
)
def test_shapes_that_can_not_be(rule, sentence):
    with pytest.raises(ValueError, match=sentence):
        read([rule], {"b": torch.zeros(3)}, {}, "file")
