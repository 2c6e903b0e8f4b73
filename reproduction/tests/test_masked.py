import torch

from prolip.scenes import RandomDraws, entails
from prolip.scenes.generalization import generalize
from reproduction import masked
from reproduction.tests.factories import embedded, gaussian


def test_measure_inclusion_of_more_uncertain_masked_inputs():
    directions = torch.eye(4, dtype=torch.float64)
    whole, views = gaussian([0.1] * 4, directions), gaussian([1.0] * 4, directions)
    rows = torch.arange(4)
    assert masked.measure_inclusion(whole, views, (rows, rows.roll(1))) == {
        "n": 4,
        "included": 1.0,
        "auroc": 1.0,
        "wins": 1.0,
    }
    assert masked.measure_inclusion(views, whole, (rows, rows.roll(1)))["included"] == 0.0
    assert masked.measure_inclusion(whole, views, (rows, rows))["auroc"] == 0.5


def test_negatives_of_text_are_not_entailed():
    captions = [one for one in embedded(lambda _: 1.0, count=60).captions if one.level > 0]
    general = [generalize(one.meaning, RandomDraws(2, number)) for number, one in enumerate(captions)]
    rows, others = masked._sample_not_entailed(captions, general, seed=1)
    assert len(rows) > 0.8 * len(captions)
    for row, other in zip(rows.tolist(), others.tolist(), strict=True):
        assert entails(captions[row].meaning, general[row])
        assert not entails(captions[row].meaning, general[other])
