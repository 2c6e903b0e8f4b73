from dataclasses import replace

import pytest
import torch

from prolip.gaussian import Gaussian
from prolip.scenes import is_true
from reproduction import matching
from reproduction.tests.factories import embedded, gaussian


@pytest.fixture(scope="module")
def drawn():
    """Captions of level 3 are narrower than images, all others wider."""
    return embedded(lambda caption: 0.05 if caption.level == 3 else 1.0, images=0.2)


def test_mismatched_captions_are_really_false(drawn):
    rows, images = matching.sample_mismatched(drawn)
    assert len(rows) > 0.8 * len(drawn.captions)
    for row, image in zip(rows.tolist(), images.tolist(), strict=True):
        assert not is_true(drawn.captions[row].meaning, drawn.scenes[image])
    levels = {
        drawn.captions[row].level for row in range(len(drawn.captions)) if row not in set(rows.tolist())
    }
    assert levels == {0}


def test_shares_against_counting(drawn):
    wide = sum(caption.level != 3 for caption in drawn.captions) / len(drawn.captions)
    found = matching.measure_matching(drawn)
    assert found["text_above_image"] == found["included"] == pytest.approx(wide)
    assert found["image_uncertainty"]["mean"] == pytest.approx(0.2)


def test_two_constants_include_everything_and_tell_nothing(drawn):
    constant = replace(drawn, texts=gaussian([1.0] * len(drawn.captions)))
    found = matching.measure_matching(constant)
    assert found["included"] == 1.0
    assert found["matched"]["log_inclusion"] == {"auroc": 0.5, "wins": 0.0}


def test_means_that_know_their_caption_are_found(drawn):
    """Each image has a direction of its own, and so have its captions."""
    count = len(drawn.scenes)
    own = torch.eye(count, dtype=torch.float64)
    log_var = torch.full((count, count), -5.0, dtype=torch.float64)
    images = Gaussian(own, log_var)
    knowing = replace(drawn, images=images, texts=images[drawn.image_of])
    found = matching.measure_matching(knowing)
    for name in ("csd", "log_inclusion", "log_containment"):
        assert found["matched"][name]["auroc"] == found["matched"][name]["wins"] == 1.0
    assert found["constant_variance"]["auroc"] == 1.0


def test_a_deterministic_model_has_csd_alone(drawn):
    points = replace(drawn, images=Gaussian.point(drawn.images.mean), texts=Gaussian.point(drawn.texts.mean))
    found = matching.measure_matching(points)
    assert [name for name, score in found["matched"].items() if score is not None] == ["csd"]
    assert found["included"] is None
    assert found["text_above_image"] is None
