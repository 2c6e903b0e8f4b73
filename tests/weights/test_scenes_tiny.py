"""The shipped model scenes-tiny: it loads by name, and reaches the numbers of its card."""

import pytest
import torch

import prolip
from prolip.data.open import open_data
from prolip.evaluation.metrics.correlation import spearman
from prolip.files import read_json
from prolip.measures import public
from prolip.preprocessing import collect_words
from prolip.scenes import (
    RandomDraws,
    Scenes,
    is_true,
    log_ambiguity,
    make_caption_chain,
    render,
)
from prolip.scenes.captions import make_complete_caption
from prolip.scenes.tasks import make_tasks
from prolip.scenes.world import get_world
from prolip.weights.load import SHIPPED_FOLDER, list_shipped_models

NAME = "scenes-tiny"
WORLD = get_world("simple", 8)
SEED = 4242
NUMBERS = read_json(SHIPPED_FOLDER / NAME / "numbers.json")


@pytest.fixture(scope="module")
def model():
    return prolip.load(NAME, device="cpu")


def accuracy(model, name, count=384):
    task = next(task for task in make_tasks(WORLD) if task.name == name)
    drawn = [task.sample(WORLD, SEED, index) for index in range(count)]
    images = model.embed_images([render(scene, 48) for scene, _ in drawn], progress=False)
    classes = model.embed_texts([f"a {name}" for name in task.class_names], progress=False)
    predictions = model.match_probability_matrix(images, classes).argmax(1)
    return (predictions == torch.tensor([label for _, label in drawn])).double().mean().item()


def test_training_words_are_those_of_the_world(model):
    source = open_data("scenes:simple,size=48,unseen=8,length=100000000,captions=1,complete=0.5,veiled=0.5")
    texts = [caption.text for index in range(3000, 6000) for caption in source.captions(index)]
    assert collect_words(texts, "canonicalize") <= model.training_words
    assert len(model.training_words) < 150
    assert model.find_unknown_words("a red circle on my sofa") == ["my", "sofa"]


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("color_shape", "zero-shot, 64 color-shape classes, by the match"),
        ("unseen", "zero-shot, pairs never seen in training"),
    ],
)
def test_zero_shot_accuracy_matches_the_card(model, task, name):
    """384 other images: four standard errors of a fraction of 0.9 are 0.06."""
    assert accuracy(model, task) == pytest.approx(NUMBERS[name], abs=0.06)


def test_retrieval_matches_the_card(model):
    scenes = [WORLD.draw_scene(SEED, index) for index in range(1000)]
    captions = [
        make_complete_caption(scene, RandomDraws(SEED, index), WORLD) for index, scene in enumerate(scenes)
    ]
    images = model.embed_images([render(scene, 48) for scene in scenes], progress=False)
    texts = model.embed_texts([caption.text for caption in captions], progress=False)
    near = model.match_probability_matrix(images, texts)
    to_text = [is_true(captions[t].meaning, scenes[i]) for i, t in enumerate(near.argmax(1).tolist())]
    to_image = [is_true(captions[t].meaning, scenes[i]) for t, i in enumerate(near.argmax(0).tolist())]
    found = (sum(to_text) + sum(to_image)) / 2000
    assert found == pytest.approx(NUMBERS["R@1, 1000 complete captions"], abs=0.05)


def test_uncertainty_correlates_with_ambiguity(model):
    source = Scenes(WORLD, length=400, seed=SEED, captions=4, levels=(0.1, 0.2, 0.4, 0.3), complete=0.5)
    captions = [caption for index in range(400) for caption in source.captions(index)]
    texts = model.embed_texts([caption.text for caption in captions], progress=False)
    truth = torch.tensor([log_ambiguity(caption.meaning, WORLD) for caption in captions])
    reported = NUMBERS["Spearman, text uncertainty and true log-ambiguity"]
    assert spearman(texts.uncertainty.double(), truth.double()) == pytest.approx(reported, abs=0.03)
    assert reported > 0.9


def test_image_uncertainty_correlates_with_ambiguity_behind_veils(model):
    source = Scenes(WORLD, length=500, size=48, seed=SEED, captions=1, veiled=1.0)
    images = model.embed_images([source.read(index).image for index in range(500)], progress=False)
    truth = torch.tensor([source.image_annotation(index).log_ambiguity for index in range(500)])
    reported = NUMBERS["Spearman, image uncertainty and true log-ambiguity (veils)"]
    assert spearman(images.uncertainty.double(), truth.double()) == pytest.approx(reported, abs=0.08)
    assert reported > 0.6


def test_uncertainty_falls_along_chains_that_include_their_images(model):
    scenes = [WORLD.draw_scene(SEED, index) for index in range(300)]
    chains = [
        make_caption_chain(scene, RandomDraws(SEED, index, 9), WORLD) for index, scene in enumerate(scenes)
    ]
    texts = model.embed_texts([step.text for steps in chains for step in steps], progress=False)
    uncertainty = texts.uncertainty.view(-1, 4)
    assert ((uncertainty[:, :-1] > uncertainty[:, 1:]).double().mean(0) > 0.9).all()
    images = model.embed_images([render(scene, 48) for scene in scenes], progress=False)
    own = images[torch.arange(300).repeat_interleave(4)]
    assert (public.inclusion(own, texts) > 0).double().mean() > 0.95


def test_shipped_model_is_small_and_has_a_card():
    folder = SHIPPED_FOLDER / NAME
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4e6
    card = (folder / "README.md").read_text()
    assert f'prolip.load("{NAME}")' in card
    assert "prolip train miniature --scale hour --seed 0 --variant likelihood --veiled 0.5" in card
    assert NAME in list_shipped_models()
