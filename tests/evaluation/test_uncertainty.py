import io
from dataclasses import replace
from itertools import pairwise, permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from rich.console import Console
from scipy.stats import rankdata, spearmanr

from prolip import scenes
from prolip.console import format_number
from prolip.data.open import open_data
from prolip.embeddings.embedder import Embedder
from prolip.evaluation import uncertainty
from prolip.evaluation.captions import EmbeddedPairs, TokenizedCaptions
from prolip.evaluation.configs import UncertaintyConfig
from prolip.evaluation.result import Result
from prolip.gaussian import Gaussian
from prolip.measures.perplexity import log_perplexity
from prolip.measures.public import csd
from prolip.model.create import create
from tests.evaluation.pairs import one_pair


@pytest.fixture(scope="module")
def pairs():
    """400 captions of 90 images; some texts appear twice, some truths are not known."""
    g = torch.Generator().manual_seed(1)

    def gaussians(count):
        mean = torch.nn.functional.normalize(torch.randn(count, 6, generator=g, dtype=torch.float64), dim=-1)
        return Gaussian(mean, torch.randn(count, 6, generator=g, dtype=torch.float64) - 3)

    lengths = torch.randint(1, 7, (400,), generator=g)
    owner = torch.cat([torch.arange(90), torch.randint(90, (310,), generator=g)])
    texts = [f"text {i % 370}" for i in range(400)]
    truth = torch.randn(400, generator=g, dtype=torch.float64)
    truth[::17] = torch.nan
    captions = TokenizedCaptions(
        texts=tuple(texts),
        image_index=owner,
        tokens=torch.randint(20, (int(lengths.sum()),), generator=g),
        lengths=lengths,
        levels=torch.randint(4, (400,), generator=g),
        log_ambiguity=truth,
    )
    keys = tuple(f"key {i}" for i in range(90))
    return EmbeddedPairs(
        images=gaussians(90),
        texts=gaussians(400),
        captions=captions,
        indices=torch.arange(90) * 2,
        keys=keys,
        name="x",
    )


@pytest.fixture(scope="module")
def result(pairs):
    return uncertainty.analyze_uncertainty(pairs, UncertaintyConfig(num_examples=5, seed=3))


def same(found, values):
    values = np.asarray(values, dtype=np.float64)
    assert found.n == len(values)
    expected = [
        values.mean(),
        values.std(),
        values.min(),
        values.max(),
        *np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95]),
    ]
    keys = ("mean", "std", "min", "max", "q05", "q25", "median", "q75", "q95")
    np.testing.assert_allclose([getattr(found, key) for key in keys], expected, rtol=1e-12)


def test_modalities(pairs, result):
    image, text = pairs.images.uncertainty.numpy(), pairs.texts.uncertainty.numpy()
    same(result.image, image)
    same(result.text, text)
    above = [t > image[o] for t, o in zip(text, pairs.captions.image_index, strict=True)]
    assert result.text_above_own_image.value == pytest.approx(sum(above) / 400)
    assert result.text_above_own_image.n == 90, "captions of one image are not independent"
    assert (result.n, result.num_captions, result.num_distinct_captions) == (90, 400, 370)
    assert sum(result.histogram.image) == 90
    assert sum(result.histogram.text) == 400
    low, high = result.histogram.edges[10:12]
    inside = ((np.log(text) >= low) & (np.log(text) < high)).sum()
    assert result.histogram.text[10] == inside


def test_lengths_and_levels(pairs, result):
    text, captions = pairs.texts.uncertainty.numpy(), pairs.captions
    for entry in result.by_length.bins:
        lengths = captions.lengths.numpy()
        same(entry, text[(lengths >= entry.low) & (lengths <= entry.high)])
    assert result.by_length.spearman == pytest.approx(spearmanr(captions.lengths, text).statistic, abs=1e-12)
    for entry in result.by_level.levels:
        same(entry, text[captions.levels.numpy() == entry.level])


@given(st.lists(st.integers(0, 30), min_size=1, max_size=300))
def test_bins_of_lengths_hold_every_caption_once_and_enough_of_them(lengths):
    bins = uncertainty._make_length_bins(torch.tensor(lengths))
    held = [sum(low <= length <= high for length in lengths) for low, high in bins]
    assert sum(held) == len(lengths)
    assert all(first[1] < second[0] for first, second in pairwise(bins))
    assert min(held) >= min(uncertainty.MIN_BIN_SIZE, len(lengths))


def test_the_truth_is_compared_over_different_texts(pairs, result):
    captions, text = pairs.captions, pairs.texts.uncertainty.numpy()
    truth = captions.log_ambiguity.numpy()
    rows = [i for i in range(370) if np.isfinite(truth[i])]
    found = result.ambiguity
    assert found.n == len(rows)
    assert found.spearman == pytest.approx(spearmanr(truth[rows], text[rows]).statistic, abs=1e-12)
    of_length = {n: [i for i in rows if captions.lengths[i] == n] for n in range(1, 7)}
    expected = {n: spearmanr(truth[i], text[i]).statistic for n, i in of_length.items() if len(i) >= 50}
    assert len(expected) > 2
    assert {e.group: e.spearman for e in found.within_length} == pytest.approx(expected, abs=1e-12)
    assert found.mean_within_length == pytest.approx(np.mean(list(expected.values())), abs=1e-12)
    level = [i for i in rows if captions.levels[i] == 2]
    assert found.within_level[2].spearman == pytest.approx(
        spearmanr(truth[level], text[level]).statistic, abs=1e-12
    )


def test_lists_are_the_ends_without_repeats(pairs, result):
    image, text, captions = pairs.images.uncertainty, pairs.texts.uncertainty, pairs.captions
    order = image.argsort().tolist()
    assert [e.image for e in result.examples.certain_images] == order[:5]
    assert [e.image for e in result.examples.uncertain_images] == order[::-1][:5]
    assert [e.index for e in result.examples.certain_images] == [2 * i for i in order[:5]]
    for entry in result.examples.certain_images:
        first = captions.image_index.tolist().index(entry.image)
        assert entry.caption == captions.texts[first], "an image stands with its first caption"
    names = list(dict.fromkeys(captions.texts[i] for i in text.argsort(descending=True).tolist()))
    assert [e.caption for e in result.examples.uncertain_captions] == names[:5]
    names = list(dict.fromkeys(captions.texts[i] for i in text.argsort().tolist()))
    assert [e.caption for e in result.examples.certain_captions] == names[:5]


def test_long_captions_are_of_the_longest_tenth(pairs, result):
    lengths, text = pairs.captions.lengths.numpy(), pairs.texts.uncertainty.numpy()
    long = [i for i in np.argsort(-text) if lengths[i] >= np.quantile(lengths, 0.9)]
    assert [e.text_uncertainty for e in result.examples.long_uncertain_captions][:2] == [
        text[i] for i in long[:2]
    ]
    for entry in result.examples.long_uncertain_captions:
        assert entry.length >= np.quantile(lengths, 0.9)
        below = np.mean([t < entry.text_uncertainty for t in text]) * 400 / 399
        assert entry.text_rank == pytest.approx(below)


def test_corners_are_by_the_sum_of_ranks(pairs, result):
    owner = pairs.captions.image_index
    image, text = pairs.images.uncertainty[owner].numpy(), pairs.texts.uncertainty.numpy()
    for name, signs in {
        "certain image, certain text": (-1, -1),
        "certain image, uncertain text": (-1, 1),
        "uncertain image, certain text": (1, -1),
        "uncertain image, uncertain text": (1, 1),
    }.items():
        best = int(np.argmax(signs[0] * rankdata(image) + signs[1] * rankdata(text)))
        found = result.examples.corners[name]
        assert (found[0].image_uncertainty, found[0].text_uncertainty) == (image[best], text[best])
        assert found[0].csd == pytest.approx(float(csd(pairs.images[owner[best]], pairs.texts[best])))
        assert len({e.image for e in found}) == len({e.caption for e in found}) == 5


def test_images_named_like_numbers_do_not_hide_texts(draw):
    captions = TokenizedCaptions(
        texts=("0", "1", "2"),
        image_index=torch.arange(3),
        tokens=torch.ones(3).long(),
        lengths=torch.ones(3).long(),
    )
    pairs = EmbeddedPairs(
        images=draw(3, 4),
        texts=draw(3, 4),
        captions=captions,
        indices=torch.arange(3),
        keys=("a",) * 3,
        name="x",
    )
    assert all(
        len(samples) == 3 for samples in uncertainty.analyze_uncertainty(pairs).examples.corners.values()
    )


def test_it_is_json_and_tables(result):
    assert Result.from_json(result.to_json()) == result
    console = Console(width=120, record=True, file=io.StringIO())
    for table in result.tables():
        console.print(table)
    text = console.export_text()
    assert f"{result.text.mean:.4g}" in text
    assert f"{result.ambiguity.spearman:.3f}" in text
    assert f"{result.regression.own_image.fit.r2_with:.3f}" in text


def test_points_are_thinned_and_belong_together(pairs, monkeypatch):
    monkeypatch.setattr(uncertainty, "POINTS", 50)
    points = uncertainty.analyze_uncertainty(pairs, UncertaintyConfig(num_examples=1, seed=2)).points
    assert len(points.text) == 50
    text = pairs.texts.uncertainty.tolist()
    for k, value in enumerate(points.text):
        row = text.index(value)
        assert points.length[k] == int(pairs.captions.lengths[row])
        assert points.image[k] == float(pairs.images.uncertainty[pairs.captions.image_index[row]])
    assert None in points.log_ambiguity


def test_one_image_with_one_caption(draw):
    pairs = one_pair(draw)
    result = uncertainty.analyze_uncertainty(pairs)
    assert Result.from_json(result.to_json()) == result
    assert result.by_length.spearman is None
    assert result.regression.own_image.fit is None
    assert result.ambiguity is result.by_level is None
    assert len(result.plane.images) == 1
    assert len(result.tables()) == 4


def test_deterministic_models_are_rejected_first(draw, pairs):
    points = Gaussian.point(pairs.images.mean)
    still = EmbeddedPairs(
        images=points,
        texts=pairs.texts,
        captions=pairs.captions,
        indices=pairs.indices,
        keys=pairs.keys,
        name="x",
    )
    with pytest.raises(ValueError, match="deterministic"):
        uncertainty.analyze_uncertainty(still)


def test_end_to_end_on_scenes():
    model = create("nano", scenes.make_tokenizer(32), seed=0).eval()
    config = UncertaintyConfig(limit=20, num_examples=3)
    source = scenes.Scenes("simple", length=30, size=32)
    result = uncertainty.evaluate_uncertainty(Embedder(model=model), source, config)
    assert Result.from_json(result.to_json()) == result
    assert (result.n, result.num_captions) == (20, 80)
    assert result.regression.ambiguity.n == result.num_distinct_captions


def test_ambiguity_is_computed_from_the_words_if_a_world_is_named(tmp_path):
    model = create("nano", scenes.make_tokenizer(32), seed=0).eval()
    source = scenes.Scenes("simple", length=12, size=32)
    rows = [["filepath", "caption"]]
    for index in range(12):
        sample = source.read(index)
        sample.image.save(tmp_path / f"{index}.png")
        rows.append([f"{index}.png", sample.captions[-1]])
    (tmp_path / "data.csv").write_text("\n".join(",".join(f'"{cell}"' for cell in row) for row in rows))
    embedder, plain = Embedder(model=model), open_data(tmp_path / "data.csv")
    assert uncertainty.evaluate_uncertainty(embedder, plain).ambiguity is None
    found = uncertainty.evaluate_uncertainty(embedder, plain, UncertaintyConfig(world="simple"))
    truth = {row[1]: source.log_ambiguity(row[1]) for row in rows[1:]}
    assert sorted(set(found.points.log_ambiguity)) == pytest.approx(sorted(set(truth.values())))


def test_a_model_without_uncertainty_is_refused_before_anything_is_read(tokenizer):
    from prolip.model.prolip import ProLIP

    config = create("nano", tokenizer).config
    config = replace(
        config, image=replace(config.image, uncertainty="none"), text=replace(config.text, uncertainty="none")
    )
    with pytest.raises(ValueError, match="deterministic"):
        uncertainty.evaluate_uncertainty(Embedder(model=ProLIP(config)), None)


def test_bad_samples_are_reported(tmp_path):
    model = create("nano", scenes.make_tokenizer(32), seed=0).eval()
    lines = [f"{name}.png,a red circle {name}" for name in "abcd"]
    (tmp_path / "data.csv").write_text("\n".join(["filepath,caption", *lines]))
    for name in "abcd":
        Image.new("RGB", (32, 32), "red").save(tmp_path / f"{name}.png")
    source = open_data(tmp_path / "data.csv")
    whole = uncertainty.evaluate_uncertainty(Embedder(model=model), source)
    assert whole.num_bad == 0
    assert "bad" not in whole.tables()[0].caption
    (tmp_path / "c.png").write_bytes(b"not an image")
    with pytest.raises(ValueError, match="bad"):
        uncertainty.evaluate_uncertainty(Embedder(model=model), source)
    result = uncertainty.evaluate_uncertainty(Embedder(model=model, max_bad_fraction=0.5), source)
    assert (result.n, result.num_captions, result.num_bad) == (3, 3, 1)
    assert "; 1 bad sample was skipped" in result.tables()[0].caption


@pytest.mark.parametrize(
    ("ambiguity", "levels", "wrong"),
    [(-0.6, None, True), (0.6, None, False), (None, 0.4, True), (None, -0.4, False)],
)
def test_tables_warn_when_general_captions_are_less_uncertain(result, ambiguity, levels, wrong):
    changed = replace(
        result,
        ambiguity=None if ambiguity is None else replace(result.ambiguity, spearman=ambiguity),
        by_level=None if levels is None else replace(result.by_level, spearman=levels),
    )
    assert (uncertainty._describe_wrong_order(changed) is not None) == wrong
    neither = replace(result, ambiguity=None, by_level=None)
    assert uncertainty._describe_wrong_order(neither) is None


def test_controls_have_the_same_correlations(pairs, result):
    captions, found = pairs.captions, result.controls
    by_name = {score.name: score for score in found.scores}
    assert list(by_name) == ["uncertainty", "words", "pieces", "unigram", "perplexity"]
    own = by_name["uncertainty"]
    assert (own.length, own.ambiguity) == (result.by_length.spearman, result.ambiguity)
    assert own.level == result.by_level.spearman
    assert by_name["pieces"].length == pytest.approx(-1.0)
    assert by_name["pieces"].ambiguity.mean_within_length is None, "it is constant there"
    entropy = log_perplexity(pairs.texts, pairs.images, found.perplexity_scale, exclude=captions.image_index)
    wanted = spearmanr(captions.levels, entropy).statistic
    assert by_name["perplexity"].level == pytest.approx(wanted, abs=1e-12)


def test_equal_pieces_compare_captions_of_one_image(pairs, result):
    texts, text = pairs.captions.texts, pairs.texts.uncertainty.tolist()
    owner, length, level = (
        values.tolist()
        for values in (pairs.captions.image_index, pairs.captions.lengths, pairs.captions.levels)
    )
    outcomes = {}
    for a, b in permutations(range(400), 2):
        if owner[a] == owner[b] and length[a] == length[b] and level[a] < level[b]:
            outcomes.setdefault((texts[a], texts[b]), text[a] > text[b])
    test = result.controls.scores[0].equal_pieces
    assert test.in_order.n == len(outcomes) > 50
    assert test.in_order.value == pytest.approx(sum(outcomes.values()) / len(outcomes))


def test_untrained_models_are_averaged(pairs):
    drawn = torch.rand(3, 400, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = uncertainty.analyze_uncertainty(
        pairs, UncertaintyConfig(num_examples=2), untrained=drawn
    ).controls
    assert (found.num_untrained, found.scores[-1].name) == (3, "untrained")
    levels = [spearmanr(pairs.captions.levels, values).statistic for values in drawn]
    assert found.scores[-1].level == pytest.approx(np.mean(levels))
    alone = [
        uncertainty.analyze_uncertainty(pairs, UncertaintyConfig(num_examples=2), untrained=[values])
        for values in drawn
    ]
    for read in (
        lambda score: score.ambiguity.spearman,
        lambda score: score.ambiguity.mean_within_length,
        lambda score: score.ambiguity.within_level[2].spearman,
        lambda score: score.equal_pieces.in_order.value,
    ):
        singles = [read(one.controls.scores[-1]) for one in alone]
        assert read(found.scores[-1]) == pytest.approx(np.mean(singles))


def test_correlation_table_has_a_row_for_each_control(result):
    table = result.tables()[1]
    names, *columns = (list(column.cells) for column in table.columns)
    assert names == ["uncertainty", "words", "word pieces", "unigram information", "pool perplexity"]
    for i, score in enumerate(result.controls.scores):
        row = [column[i] for column in columns]
        assert row[:3] == [
            format_number(value, ".3f") for value in (score.length, score.level, score.ambiguity.spearman)
        ]
    bare = replace(result, controls=None).tables()[1]
    assert [list(column.cells) for column in bare.columns][:3] == [
        ["uncertainty"], columns[0][:1], columns[1][:1],
    ]  # fmt: skip
