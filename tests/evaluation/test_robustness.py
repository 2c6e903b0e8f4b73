"""Robustness: each number against the model asked by hand."""

from dataclasses import replace

import pytest
import torch
from PIL import Image

from prolip.data.sources.labeled import open_labeled
from prolip.embeddings.embedder import Embedder
from prolip.evaluation import robustness
from prolip.evaluation.configs import RobustnessConfig
from prolip.evaluation.corruptions import make_corruption, make_occlusion
from prolip.evaluation.pgd import PGDAttack, attack_batch
from prolip.evaluation.result import Result
from prolip.measures.nearest import similarity
from prolip.mixture import pool
from prolip.model.prolip import ProLIP
from prolip.preprocessing.images import normalize, read_image, resize_and_crop
from tests.evaluation.likelihood import as_likelihood


@pytest.fixture
def folder(tmp_path, generator):
    """Nine images in three classes' folders, and two templates."""
    for number in range(9):
        place = tmp_path / "data" / f"{['red', 'green', 'blue'][number % 3]}_star"
        place.mkdir(parents=True, exist_ok=True)
        levels = torch.randint(0, 256, (40, 40, 3), generator=generator).to(torch.uint8).numpy()
        Image.fromarray(levels).save(place / f"{number}.png")
    templates = tmp_path / "data" / "zeroshot_classification_templates.txt"
    templates.write_text("a {c}\ntwo small {c} and a circle\n")
    return tmp_path / "data"


def by_hand(model, folder, change=None, count=None):
    data = open_labeled(folder)
    assert len(data.templates) == 2
    files = sorted(folder.rglob("*.png"), key=lambda path: str(path.relative_to(folder)))
    rules = model.config.image.preprocessing
    pixels = torch.stack([resize_and_crop(read_image(path), rules) for path in files])
    if change is not None:
        pixels = torch.stack([change.apply(one, number) for number, one in enumerate(pixels)])
    names = sorted({path.parent.name for path in files})
    labels = torch.tensor([names.index(path.parent.name) for path in files])
    prompts = [
        pool(model.embed_texts([t.replace("{c}", name) for t in data.templates])) for name in data.class_names
    ]
    classes = type(prompts[0]).stack(prompts)
    with torch.no_grad():
        images = model.encode_image(normalize(pixels, rules))
    return pixels, labels, classes, images


def accuracy_and_uncertainty(images, labels, classes):
    correct = similarity(images, classes).argmax(1) == labels
    return pytest.approx((correct.double().mean().item(), images.uncertainty.mean().item()), rel=1e-5)


def values_of(row):
    return row.accuracy.value, row.uncertainty.value


def test_every_transform_matches_direct_encoding(nano, folder, tmp_path):
    config = RobustnessConfig(
        occluded=(0, 0.1), corruptions=("gaussian_noise", "jpeg"), severities=(2, 5), pgd_steps=(2, 0, 1), pgd_images=4
    )  # fmt: skip
    embedder = Embedder(model=nano, cache=tmp_path / "cache")
    result = robustness.evaluate_robustness(embedder, open_labeled(folder), config)
    assert Result.from_json(result.to_json()) == result
    assert (result.n, result.num_classes, result.rank_by) == (9, 3, "csd")
    pixels, labels, classes, images = by_hand(nano, folder)
    assert values_of(result.clean) == accuracy_and_uncertainty(images, labels, classes)
    assert (result.clean.accuracy.n, result.clean.uncertainty.n) == (9, 9)
    assert [row.fraction for row in result.occlusion] == [0, 0.1]
    assert values_of(result.occlusion[0]) == values_of(result.clean)
    hidden = by_hand(nano, folder, make_occlusion(0.1))[3]
    assert values_of(result.occlusion[1]) == accuracy_and_uncertainty(hidden, labels, classes)
    assert list(result.corruptions) == ["gaussian_noise", "jpeg"]
    for kind, rows in result.corruptions.items():
        assert [row.severity for row in rows] == [2, 5]
        for row in rows:
            worse = by_hand(nano, folder, make_corruption(kind, row.severity))[3]
            assert values_of(row) == accuracy_and_uncertainty(worse, labels, classes)
    few = [0, 3, 5, 8]
    attacked = attack_batch(nano, pixels[few], labels[few], classes, PGDAttack(steps=(2, 1)), few)
    rows = result.pgd.rows
    assert [row.steps for row in rows] == [2, 0, 1]
    assert result.pgd.n == rows[0].accuracy.n == 4
    assert values_of(rows[0]) == accuracy_and_uncertainty(attacked[0].images, labels[few], classes)
    assert values_of(rows[1]) == accuracy_and_uncertainty(images[few], labels[few], classes)
    assert values_of(rows[2]) == accuracy_and_uncertainty(attacked[1].images, labels[few], classes)
    assert robustness.evaluate_robustness(embedder, open_labeled(folder), config) == result, "from the cache"


def test_a_likelihood_is_classified_and_attacked_by_its_match(nano, folder, monkeypatch):
    model = as_likelihood(nano)
    attacks, own = [], robustness.attack_images
    monkeypatch.setattr(robustness, "attack_images", lambda *a, **k: (attacks.append(a[4]), own(*a, **k))[1])
    config = RobustnessConfig(occluded=(), corruptions=(), pgd_steps=(1,), pgd_images=2)
    result = robustness.evaluate_robustness(Embedder(model=model), open_labeled(folder), config)
    assert result.rank_by == "match"
    assert [attack.metric for attack in attacks] == [model.logit_parameters._replace(bias=0.0)]
    _, labels, classes, images = by_hand(model, folder)
    logits = model.logit_parameters.logits_matrix(images, classes)
    assert result.clean.accuracy.value == pytest.approx((logits.argmax(1) == labels).double().mean().item())
    assert Result.from_json(result.to_json()) == result


def test_parts_can_be_left_out(nano, folder):
    result = robustness.evaluate_robustness(
        Embedder(model=nano),
        open_labeled(folder),
        RobustnessConfig(occluded=(), corruptions=(), pgd_steps=()),
    )
    assert (result.occlusion, result.corruptions, result.pgd) == ((), {}, None)
    assert result.tables() == []


def test_invalid_arguments_are_rejected_before_any_work(nano, folder, monkeypatch):
    monkeypatch.setattr(Embedder, "embed_images", lambda *_, **__: pytest.fail("work was done"))
    monkeypatch.setattr(robustness, "embed_classes", lambda *_, **__: pytest.fail("work was done"))
    data = open_labeled(folder)
    for wrong in (
        {"occluded": (7,)},
        {"corruptions": ("fog",)},
        {"severities": (9,)},
        {"epsilon": 8},
        {"pgd_images": 0},
        {"pgd_steps": (-1,)},
    ):
        with pytest.raises(ValueError):  # noqa: PT011 (each component's own tests check its message)
            robustness.evaluate_robustness(Embedder(model=nano), data, RobustnessConfig(**wrong))


def test_a_deterministic_model_has_accuracies_only(nano, folder, generator):
    model = ProLIP(nano.config.with_uncertainty("none"), nano.tokenizer).init_weights(generator).eval()
    result = robustness.evaluate_robustness(
        Embedder(model=model),
        open_labeled(folder),
        RobustnessConfig(occluded=(0.1,), corruptions=("jpeg",), severities=(1,), pgd_steps=(0, 1)),
    )
    rows = [result.clean, *result.occlusion, *result.corruptions["jpeg"], *result.pgd.rows]
    assert len(rows) == 5
    assert all(row.uncertainty is None for row in rows)
    assert len(result.tables()) == 3


def test_bad_images_are_skipped_and_counted(nano, folder):
    config = RobustnessConfig(occluded=(0, 0.1), corruptions=("jpeg",), severities=(1,), pgd_steps=(1,))
    few = robustness.evaluate_robustness(Embedder(model=nano), open_labeled(folder), replace(config, limit=3))
    assert (few.n, few.occlusion[1].accuracy.n, few.pgd.n) == (3, 3, 3)
    whole = robustness.evaluate_robustness(Embedder(model=nano), open_labeled(folder), config)
    assert whole.num_bad == 0
    assert [table.caption for table in whole.tables()] == [None] * 4
    (folder / "red_star" / "0.png").write_bytes(b"not an image")
    with pytest.raises(ValueError, match="bad"):
        robustness.evaluate_robustness(Embedder(model=nano), open_labeled(folder), config)
    result = robustness.evaluate_robustness(
        Embedder(model=nano, max_bad_fraction=0.5), open_labeled(folder), config
    )
    assert (result.n, result.num_bad, result.pgd.n) == (8, 1, 8)
    assert result.tables()[0].caption == "1 bad sample was skipped"


def test_what_is_asked_for_reaches_the_attack_and_every_row(nano, folder, monkeypatch):
    attacks, ranked = [], []
    real, near = robustness.attack_images, robustness.similarity
    monkeypatch.setattr(robustness, "attack_images", lambda *a, **k: (attacks.append(a[4]), real(*a, **k))[1])
    monkeypatch.setattr(
        robustness, "similarity", lambda a, b, by="csd": (ranked.append(by), near(a, b, by))[1]
    )
    asked = {"epsilon": 6 / 255, "step_size": 3 / 255, "start": "clean"}
    result = robustness.evaluate_robustness(
        Embedder(model=nano),
        open_labeled(folder),
        RobustnessConfig(
            occluded=(0, 0.1),
            corruptions=("jpeg",),
            severities=(1,),
            pgd_steps=(0, 1),
            rank_by="cosine",
            **asked,
        ),
    )
    assert attacks == [PGDAttack(steps=(1,), metric="cosine", **asked)]
    assert ranked == ["cosine"] * 6  # jpeg, clean, two shares, two counts of steps
    assert {key: getattr(result.pgd, key) for key in asked} == asked


def test_unreadable_image_does_not_shift_pgd_labels(nano, folder):
    """PGD reads by the numbers of the source, and labels go with them."""
    bad = sorted(folder.rglob("*.png"), key=lambda path: str(path.relative_to(folder)))[1]
    bad.write_bytes(b"not an image")
    data = open_labeled(folder)
    with pytest.MonkeyPatch.context() as patch:
        seen = {}
        patch.setattr(
            robustness, "attack_images", lambda model, pixels, labels, *_, sample_indices, **__: seen.update(
                pixels=list(pixels), labels=labels, numbers=sample_indices
            ) or {1: model.embed_images([Image.new("RGB", (8, 8))] * len(pixels))},
        )  # fmt: skip
        robustness.evaluate_robustness(
            Embedder(model=nano, max_bad_fraction=0.5),
            data,
            RobustnessConfig(occluded=(), corruptions=(), pgd_steps=(1,), pgd_images=3),
        )
    assert seen["numbers"] == [0, 5, 8]  # of 0, 2, ..., 8
    assert seen["labels"].tolist() == [0, 1, 2]
    rules = nano.config.image.preprocessing
    for pixels, number in zip(seen["pixels"], seen["numbers"], strict=True):
        assert torch.equal(pixels, resize_and_crop(read_image(data.source.read(number).image), rules))
