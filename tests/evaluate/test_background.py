import io
import json

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from prolip.data.coco import annotation_of
from prolip.data.scenes.write import Plan, write
from prolip.embed.encode import encode_images
from prolip.evaluate import background
from prolip.evaluate.background import Objects, compare
from prolip.gaussian import Gaussian
from prolip.model.create import create


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("scenes") / "data"
    write(out, Plan(size=32, test=9, train=1), show=False)
    return out / "hierarimgs"


@pytest.fixture
def two(tmp_path):
    """A picture with two segments (one a crowd), one without any, one whose file is of another size."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 200, (3, 20, 30, 3), dtype=np.uint8)
    for number, picture in enumerate(pictures):
        Image.fromarray(picture if number < 2 else picture[:10]).save(tmp_path / f"{number}.png")
    masks = np.zeros((2, 20, 30), dtype=bool)
    masks[0, 2:8, 3:9] = True
    masks[1, 5:12, 7:20] = True
    annotations = [
        annotation_of(masks[0], id=1, image_id=0, category_id=1),
        annotation_of(masks[1], id=2, image_id=0, category_id=1) | {"iscrowd": 1},
        annotation_of(masks[0], id=3, image_id=2, category_id=1),
    ]
    images = [{"id": n, "file_name": f"{n}.png", "height": 20, "width": 30} for n in range(3)]
    (tmp_path / "instances.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    return tmp_path, pictures, masks


def test_all_but_the_union_of_the_segments_is_blank(two):
    folder, pictures, masks = two
    source = Objects(folder / "instances.json", folder, canvas=201)
    assert len(source) == 2, "a picture without segments is left out"
    sample = source.read(0)
    kept = np.asarray(sample.image)
    union = masks.any(0)
    assert np.array_equal(kept[union], pictures[0][union])
    assert (kept[~union] == 201).all()
    assert sample.extra["kept"] == union.mean()
    whole = Objects(folder / "instances.json", folder).read(0)
    assert np.array_equal(np.asarray(Image.open(whole.image)), pictures[0])


def test_a_picture_that_fails_once_is_left_out_of_both(two, nano, monkeypatch):
    folder, _, _ = two
    monkeypatch.setattr(background, "encode_images", lambda *a, **k: encode_images(*a, **k, bad_limit=1.0))
    result = background.evaluate(nano, folder / "instances.json", folder, controls=0)
    assert result["numbers"] == [0]
    assert len(result["before"]) == len(result["after"]) == result["model"]["images"] == 1


def test_numbers_are_those_of_the_pictures(folder, nano):
    result = background.evaluate(nano, folder / "instances.json", folder / "images", canvas=200, controls=2)
    plain, cut = (Objects(folder / "instances.json", folder / "images", canvas=c) for c in (None, 200))
    before = nano.embed_images([plain.read(i).image for i in range(9)]).uncertainty.double()
    after = nano.embed_images([cut.read(i).image for i in range(9)]).uncertainty.double()
    np.testing.assert_allclose(result["before"], before, rtol=1e-5)
    np.testing.assert_allclose(result["after"], after, rtol=1e-5)
    assert result["model"]["before"] == pytest.approx(float(before.mean()), rel=1e-5)
    assert result["model"]["difference"] == pytest.approx(float((after - before).mean()), rel=1e-3, abs=1e-7)
    assert result["largest_rises"][0] == int((after - before).argmax())
    assert result["largest_falls"][0] == int((after - before).argmin())
    assert result["paper"] == {"before": 0.109, "after": 0.117}
    assert len(result["controls"]) == 2
    assert result["controls"][0] == result["model"], "the model is itself the fresh one of seed 0"
    assert result["controls"][1] != result["model"]
    json.dumps(result, allow_nan=False)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(*background.tables(result))
    text = console.export_text()
    assert "untrained, seed 1" in text
    assert f"{result['model']['after']:.4g}" in text


def test_compare_against_a_loop(draw):
    whole, objects = draw(7, 5), draw(7, 5)
    found = compare(whole, objects)
    cosine = [[float(a @ b) for b in objects.mean] for a in whole.mean]
    assert found["cosine"] == pytest.approx(np.mean([cosine[i][i] for i in range(7)]))
    assert found["cosine_others"] == pytest.approx(
        np.mean([cosine[i][j] for i in range(7) for j in range(7) if i != j])
    )
    rises = [objects[i].uncertainty > whole[i].uncertainty for i in range(7)]
    assert found["rises"] == pytest.approx(sum(rises) / 7)
    wider = Gaussian(whole.mean, whole.log_var + 1)
    assert compare(whole, wider)["rises"] == 1.0
    assert compare(whole, whole)["rises"] == 0.0
    assert compare(whole[:1], wider[:1])["cosine_others"] is None


def test_untrained_models_are_fresh_and_of_the_same_kind(tokenizer):
    model = create("nano", tokenizer, seed=4)
    fresh = background.untrained(model, 4)
    assert fresh.config == model.config
    assert not fresh.training
    assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), model.parameters(), strict=True))
    assert not torch.equal(background.untrained(model, 5).image.positions, model.image.positions)


def test_mistakes_are_told(folder, two, nano):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        Objects(folder / "instances.json", folder / "nowhere")
    with pytest.raises(ValueError, match="canvas"):
        Objects(folder / "instances.json", folder / "images", canvas=300)
    with pytest.raises(ValueError, match="limit"):
        Objects(folder / "instances.json", folder / "images", limit=0)
    with pytest.raises(ValueError, match="controls"):
        background.evaluate(nano, folder / "instances.json", folder / "images", controls=-1)
    empty = two[0] / "empty.json"
    empty.write_text(
        json.dumps({"images": [{"id": 1, "file_name": "1.png", "height": 2, "width": 2}], "annotations": []})
    )
    with pytest.raises(ValueError, match="has a segment"):
        Objects(empty, two[0])
    assert len(Objects(folder / "instances.json", folder / "images", limit=4)) == 4


def test_other_objects_are_other_data(folder):
    path, images = folder / "instances.json", folder / "images"
    found = {
        Objects(path, images, canvas=c, limit=n).fingerprint() for c in (None, 0, 255) for n in (None, 4)
    }
    assert len(found) == 6
