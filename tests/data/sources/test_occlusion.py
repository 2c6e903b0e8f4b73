import numpy as np
import pytest
from PIL import Image

from prolip.data.sources.occlusion import occlude_center


@pytest.mark.parametrize("share", [0.0, 0.025, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("size", [(100, 60), (224, 224), (33, 47)])
def test_the_hidden_share_is_in_the_middle(share, size):
    image = Image.new("RGB", size, (255, 0, 0))
    hidden = (np.asarray(occlude_center(image, share)) == 128).all(-1)
    assert hidden.mean() == pytest.approx(share, abs=0.5 * (1 / size[0] + 1 / size[1]))
    assert np.asarray(image)[..., 0].min() == 255  # the original is as it was
    if 0 < share < 1:
        rows, columns = np.nonzero(hidden)
        assert abs(rows.mean() - (size[1] - 1) / 2) <= 0.5
        assert abs(columns.mean() - (size[0] - 1) / 2) <= 0.5
        assert hidden[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1].all()


@pytest.mark.parametrize(("share", "level"), [(-0.1, 0), (1.1, 0), (float("nan"), 0), (0.1, 256), (0.1, -1)])
def test_what_is_refused(share, level):
    with pytest.raises(ValueError, match="must be in 0"):
        occlude_center(Image.new("RGB", (8, 8)), share, level)


def test_what_is_no_rgb_image_is_refused():
    with pytest.raises(ValueError, match="wanted an RGB image, not L"):
        occlude_center(Image.new("L", (8, 8)), 0.1)
