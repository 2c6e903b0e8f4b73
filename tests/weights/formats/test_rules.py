"""Rules report for every tensor, in both directions."""

import pytest
import torch

from prolip.weights.formats.rules import (
    apply_rules,
    concat_rule,
    convolution_rule,
    copy_rule,
    invert_rules,
    layer_rules,
    reshape_rule,
    transpose_rule,
)


def test_apply_rules():
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
        transpose_rule("A", "a"),
        convolution_rule("B", "b", 2),
        reshape_rule("C", "c", 4),
        concat_rule("QK", "q", "k"),
        *layer_rules("N", "n"),
    ]
    ours, report = apply_rules(rules, theirs, {"buff.*": "no weight"}, "file")
    assert torch.equal(ours["A"], theirs["a"].T)
    assert torch.equal(ours["B"], theirs["b"].reshape(2, 12))
    assert ours["C"].shape == (4,)
    assert torch.equal(ours["QK"], torch.cat([theirs["q"], theirs["k"]]))
    assert report.loaded == ("A", "B", "C", "N.bias", "N.weight", "QK")
    assert report.unused == (("buffer", "no weight"),)


def test_invert_rules_is_the_inverse():
    theirs = {"a": torch.randn(2, 3), "b": torch.randn(2, 3, 2, 2), "s": torch.tensor(1.0)}
    rules = [transpose_rule("A", "a"), convolution_rule("B", "b", 2), copy_rule("S", "s")]
    ours, _ = apply_rules(rules, theirs, {}, "file")
    again = invert_rules(rules, ours)
    assert all(torch.equal(again[name], value) for name, value in theirs.items())


def test_invert_rules_rejects_unwritable_tensors():
    with pytest.raises(ValueError, match="1 tensors can't be stored in this format: C"):
        invert_rules([reshape_rule("C", "c", 4)], {"C": torch.ones(4)})
    with pytest.raises(ValueError, match="1 tensors can't be stored in this format: X"):
        invert_rules([copy_rule("S", "s")], {"S": torch.ones(4), "X": torch.ones(1)})


def test_ignored_pattern_must_match_the_full_name():
    with pytest.raises(ValueError, match="1 tensors are not known in this format: buffer2"):
        apply_rules([], {"buffer2": torch.zeros(1)}, {"buffer": "no weight"}, "file")


def test_apply_rules_truncates_long_lists():
    with pytest.raises(ValueError, match=r"6 tensors are missing: a0, a1, a2, a3, and 2 more"):
        apply_rules([copy_rule(f"A{i}", f"a{i}") for i in range(6)], {}, {}, "file")


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (convolution_rule("B", "b", 2), r"b \(3,\)"),
        (reshape_rule("C", "b", 7), r"b \(3,\) can't be converted to C"),
    ],
)
def test_apply_rules_rejects_wrong_shapes(rule, message):
    with pytest.raises(ValueError, match=message):
        apply_rules([rule], {"b": torch.zeros(3)}, {}, "file")
