"""HierarImgs: the inclusion test against loops; its control."""

import pytest
import torch
from sklearn.metrics import roc_auc_score

from prolip.data.sources.hierarimgs import HierarImgs, read_hierarimgs
from prolip.embeddings.embedder import Embedder
from prolip.embeddings.identity import model_identity
from prolip.evaluation import hierarimgs
from prolip.evaluation.configs import HierarImgsConfig
from prolip.evaluation.result import Result
from prolip.gaussian import Gaussian
from prolip.measures import public
from prolip.model.prolip import ProLIP
from prolip.scenes.config import SceneDatasetSpec
from prolip.scenes.writer import write_dataset


def test_every_number_by_a_loop(draw):
    count = 12
    original, level = draw(count, 5), draw(count, 5)
    result = hierarimgs.compute_inclusion_metrics(original, [level, original])
    row = result.levels[0].inclusion
    h = [public.inclusion(original[i], level[i]).item() for i in range(count)]
    assert row.included.value == sum(value > 0 for value in h) / count
    assert row.included.n == result.n == count
    assert (
        row.inverse.value
        == sum(public.inclusion(level[i], original[i]).item() > 0 for i in range(count)) / count
    )
    assert row.h_mean.value == pytest.approx(sum(h) / count)
    assert row.uncertainty - result.uncertainty == pytest.approx(row.difference.value)
    assert row.more_uncertain.value == (level.uncertainty > original.uncertainty).double().mean().item()
    assert list(result.failures) == sorted((i for i in range(count) if h[i] <= 0), key=lambda i: h[i])
    own = [i == j for i in range(count) for j in range(count)]
    for name, measure in (
        ("h", public.inclusion),
        ("log_inclusion", public.log_inclusion),
        ("log_containment", public.log_containment),
    ):
        values = [measure(original[i], level[j]).item() for i in range(count) for j in range(count)]
        assert getattr(row.own_level_auroc, name) == pytest.approx(roc_auc_score(own, values), abs=1e-9)
    distances = [-public.csd(original[i], level[j]).item() for i in range(count) for j in range(count)]
    assert result.levels[0].own_level_auroc_csd == pytest.approx(roc_auc_score(own, distances), abs=1e-9)
    same = result.levels[1].inclusion
    assert (same.included.value, same.inverse.value, same.more_uncertain.value) == (0.0, 0.0, 0.0), (
        "H of equals is 0"
    )
    assert hierarimgs.compute_inclusion_metrics(original, [original]).failures == tuple(range(count))


def test_wider_copy_includes_original_but_h_auroc_is_low(draw):
    original = draw(40, 16, low=-9.0, high=-7.0)
    level = Gaussian(original.mean, original.log_var + 1.0)
    row = hierarimgs.compute_inclusion_metrics(original, [level]).levels[0].inclusion
    assert (row.included.value, row.inverse.value) == (1.0, 0.0)
    assert row.own_level_auroc.log_inclusion == 1.0
    assert row.own_level_auroc.log_containment == 1.0
    assert row.own_level_auroc.h < 0.5, "H grows with distance: negatives score higher"


@pytest.mark.parametrize(
    "values", [[0.0, 0.0], [2.0, 2.0], [-3.0, -1.0], [0.1, 7.0, -2.0], [1e-9, -1e9], [0.0, -5.0]]
)
def test_histograms_hold_every_value_and_have_an_edge_at_zero(values):
    histogram = hierarimgs._histogram(torch.tensor(values, dtype=torch.float64))
    edges, counts = histogram.edges, histogram.counts
    assert sum(counts) == len(values)
    assert 0.0 in edges
    assert list(edges) == sorted(set(edges))
    negative = sum(count for count, right in zip(counts, edges[1:], strict=True) if right <= 0)
    on_the_last_edge = sum(value == 0 for value in values) if edges[-1] == 0 else 0
    assert negative == sum(value < 0 for value in values) + on_the_last_edge


@pytest.fixture(scope="module")
def levels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    write_dataset(folder, SceneDatasetSpec(image_size=32, num_test=12, num_train=2), progress=False)
    return folder / "hierarimgs" / "levels"


def test_the_whole_evaluation_with_its_control(nano, levels, tmp_path):
    data = read_hierarimgs(levels)
    result = hierarimgs.evaluate_hierarimgs(
        Embedder(model=nano, cache=tmp_path), data, HierarImgsConfig(controls=2)
    )
    assert [path.name for path in tmp_path.iterdir()] == [model_identity(nano)], "controls are not cached"
    assert Result.from_json(result.to_json()) == result
    assert (result.n, len(result.levels), result.num_bad) == (len(data.originals), 3, 0)
    assert result.tables()[0].caption is None
    original = nano.embed_images(list(data.originals))
    for row, files in zip(result.levels, data.levels, strict=True):
        h = public.inclusion(original, nano.embed_images(list(files)))
        assert row.inclusion.included.value == (h > 0).double().mean().item()
    fresh = ProLIP(nano.config, nano.tokenizer).init_weights(torch.Generator().manual_seed(1)).eval()
    h = public.inclusion(fresh.embed_images(list(data.originals)), fresh.embed_images(list(data.levels[1])))
    assert [len(level.inclusion.untrained_included) for level in result.levels] == [2, 2, 2]
    assert result.levels[1].inclusion.untrained_included[1].value == (h > 0).double().mean().item()
    assert [table.row_count for table in result.tables()] == [3]
    bare = hierarimgs.evaluate_hierarimgs(Embedder(model=nano), data, HierarImgsConfig(controls=0))
    assert [level.inclusion.untrained_included for level in bare.levels] == [(), (), ()]
    assert "–" in list(bare.tables()[0].columns[2].cells)


def test_image_with_unreadable_level_is_dropped_from_all_levels(nano, levels, tmp_path):
    data = read_hierarimgs(levels)
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"not an image")
    files = list(data.levels[1])
    files[2] = broken
    broken_data = HierarImgs(
        path=data.path, originals=data.originals, levels=(data.levels[0], tuple(files), data.levels[2])
    )
    with pytest.raises(ValueError, match="bad"):
        hierarimgs.evaluate_hierarimgs(Embedder(model=nano), broken_data, HierarImgsConfig(controls=0))
    result = hierarimgs.evaluate_hierarimgs(
        Embedder(model=nano, max_bad_fraction=0.5), broken_data, HierarImgsConfig(controls=1)
    )
    assert result.tables()[0].caption == "1 bad sample was skipped"
    rest = [i for i in range(len(data.originals)) if i != 2]
    assert (result.n, result.num_bad) == (len(rest), 1)
    original = nano.embed_images([data.originals[i] for i in rest])
    for row, level in zip(result.levels, data.levels, strict=True):
        h = public.inclusion(original, nano.embed_images([level[i] for i in rest]))
        assert row.inclusion.included.value == (h > 0).double().mean().item()
    h = public.inclusion(original, nano.embed_images([data.levels[0][i] for i in rest])).tolist()
    failed = sorted((value, i) for value, i in zip(h, rest, strict=True) if value <= 0)
    assert failed, "the test needs originals that are not included"
    assert result.failures == tuple(i for _, i in failed)


def test_a_deterministic_model_has_distances_only(nano, levels, generator):
    model = ProLIP(nano.config.with_uncertainty("none"), nano.tokenizer).init_weights(generator).eval()
    result = hierarimgs.evaluate_hierarimgs(Embedder(model=model), read_hierarimgs(levels))
    assert (result.uncertainty, result.failures) == (None, None)
    assert all(row.inclusion is None and 0 <= row.own_level_auroc_csd <= 1 for row in result.levels)
    assert Result.from_json(result.to_json()) == result
    assert [table.row_count for table in result.tables()] == [3]


def test_both_directions_of_the_logarithms_are_medians(draw):
    original, level = draw(9, 5), draw(9, 5)
    row = hierarimgs.compute_inclusion_metrics(original, [level]).levels[0].inclusion
    for name, measure in (
        ("log_inclusion", public.log_inclusion),
        ("log_containment", public.log_containment),
    ):
        there = sorted(measure(original[i], level[i]).item() for i in range(9))[4]
        back = sorted(measure(level[i], original[i]).item() for i in range(9))[4]
        found = getattr(row, name)
        assert (found.original_in_level, found.level_in_original) == pytest.approx((there, back))
        assert there != pytest.approx(back)


def test_negatives_are_spread_over_all_images(draw, monkeypatch):
    monkeypatch.setattr(hierarimgs, "MAX_NEGATIVES", 5)
    original, level = draw(17, 5), draw(17, 5)
    row = hierarimgs.compute_inclusion_metrics(original, [level]).levels[0]
    few = [0, 4, 8, 12, 16]
    wanted = hierarimgs.compute_inclusion_metrics(original[few], [level[few]]).levels[0]
    assert row.inclusion.own_level_auroc == wanted.inclusion.own_level_auroc
    assert row.own_level_auroc_csd == wanted.own_level_auroc_csd
