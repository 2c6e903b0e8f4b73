import io

import numpy as np
import pytest
from rich.console import Console

from prolip.data.sources.foreground import ForegroundImages
from prolip.embeddings.embedder import Embedder
from prolip.embeddings.identity import model_identity
from prolip.evaluation import background, paper_numbers
from prolip.evaluation.background import compare_backgrounds
from prolip.evaluation.configs import BackgroundConfig
from prolip.evaluation.result import Result
from prolip.gaussian import Gaussian
from prolip.scenes.config import SceneDatasetSpec
from prolip.scenes.writer import write_dataset
from tests.data.annotated import write_three


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("scenes") / "data"
    write_dataset(out, SceneDatasetSpec(image_size=32, num_test=9, num_train=1), progress=False)
    return out / "hierarimgs"


@pytest.fixture
def two(tmp_path):
    return tmp_path, *write_three(tmp_path)


def shown(result):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(*result.tables())
    return console.export_text()


def test_image_bad_in_one_source_is_dropped_from_both(two, nano):
    folder, _, _ = two
    data = ForegroundImages(folder / "instances.json", folder)
    with pytest.raises(ValueError, match="bad"):
        background.evaluate_background(Embedder(model=nano), data, BackgroundConfig(controls=0))
    result = background.evaluate_background(
        Embedder(model=nano, max_bad_fraction=1.0), data, BackgroundConfig(controls=1)
    )
    assert (result.indices, result.num_bad) == ((0,), 1)
    assert "1 bad sample was skipped" in shown(result)
    assert len(result.before) == len(result.after) == result.model.n == result.n == 1


def test_background_result_matches_direct_embedding(folder, nano):
    data = ForegroundImages(folder / "instances.json", folder / "images")
    result = background.evaluate_background(
        Embedder(model=nano), data, BackgroundConfig(canvas=200, controls=2)
    )
    plain, cut = (
        ForegroundImages(folder / "instances.json", folder / "images", canvas=c) for c in (None, 200)
    )
    before = nano.embed_images([plain.read(i).image for i in range(9)]).uncertainty.double()
    after = nano.embed_images([cut.read(i).image for i in range(9)]).uncertainty.double()
    np.testing.assert_allclose(result.before, before, rtol=1e-5)
    np.testing.assert_allclose(result.after, after, rtol=1e-5)
    assert result.model.before == pytest.approx(float(before.mean()), rel=1e-5)
    assert result.model.difference.value == pytest.approx(float((after - before).mean()), rel=1e-3, abs=1e-7)
    assert result.largest_increases[0] == int((after - before).argmax())
    assert result.largest_decreases[0] == int((after - before).argmin())
    assert len(result.untrained) == 2
    assert result.untrained[0] == result.model, "the model is itself the fresh one of seed 0"
    assert result.untrained[1] != result.model
    assert Result.from_json(result.to_json()) == result
    text = shown(result)
    assert result.num_bad == 0
    assert "bad" not in text
    assert "untrained, seed 1" in text
    assert all(f"{value:.4g}" in text for value in paper_numbers.BACKGROUND_REMOVED)
    assert f"{result.model.after:.4g}" in text


def test_compare_against_a_loop(draw):
    whole, objects = draw(7, 5), draw(7, 5)
    found = compare_backgrounds(whole, objects)
    cosine = [[float(a @ b) for b in objects.mean] for a in whole.mean]
    assert found.cosine.value == pytest.approx(np.mean([cosine[i][i] for i in range(7)]))
    assert found.cosine_negatives == pytest.approx(
        np.mean([cosine[i][j] for i in range(7) for j in range(7) if i != j])
    )
    rises = [objects[i].uncertainty > whole[i].uncertainty for i in range(7)]
    assert found.fraction_increased.value == pytest.approx(sum(rises) / 7)
    wider = Gaussian(whole.mean, whole.log_var + 1)
    assert compare_backgrounds(whole, wider).fraction_increased.value == 1.0
    assert compare_backgrounds(whole, whole).fraction_increased.value == 0.0
    assert compare_backgrounds(whole[:1], wider[:1]).cosine_negatives is None


def test_embeddings_of_untrained_models_are_not_cached(folder, nano, tmp_path):
    data = ForegroundImages(folder / "instances.json", folder / "images")
    embedder = Embedder(model=nano, cache=tmp_path)
    background.evaluate_background(embedder, data, BackgroundConfig(controls=2))
    assert [path.name for path in tmp_path.iterdir()] == [model_identity(nano)]


def test_invalid_number_of_untrained_models(folder, nano):
    data = ForegroundImages(folder / "instances.json", folder / "images")
    with pytest.raises(ValueError, match="untrained"):
        background.evaluate_background(Embedder(model=nano), data, BackgroundConfig(controls=-1))
    with pytest.raises(ValueError, match="not 256"):
        background.evaluate_background(Embedder(model=nano), data, BackgroundConfig(canvas=256, controls=0))
