from dataclasses import replace

import pytest

from prolip.training import recipes
from reproduction import recipe
from reproduction.cell import COMMITTED, read_cell
from reproduction.recipe import (
    compute_current_fingerprint,
    compute_fingerprint,
    list_variants,
    make_run_config,
)

CONFIG = recipes.load_recipe("nano").build_config()


@pytest.mark.parametrize(
    "same",
    [
        replace(CONFIG, out="elsewhere"),
        replace(CONFIG, seed=1),
        replace(CONFIG, log=replace(CONFIG.log, every_steps=3)),
        replace(CONFIG, data=replace(CONFIG.data, workers=2)),
    ],
)
def test_where_and_how_it_is_shown_makes_no_other_recipe(same):
    assert compute_fingerprint(same, "prolip") == compute_fingerprint(CONFIG, "prolip")


@pytest.mark.parametrize(
    "other",
    [
        replace(CONFIG, samples=1280),
        replace(CONFIG, objective=replace(CONFIG.objective, vib=0.5)),
        replace(CONFIG, optimizer=replace(CONFIG.optimizer, lr=1e-2)),
    ],
)
def test_what_changes_the_run_changes_the_fingerprint(other):
    assert compute_fingerprint(other, "prolip") != compute_fingerprint(CONFIG, "prolip")


def test_scenes_of_another_version_make_another_cell(monkeypatch):
    before = compute_fingerprint(CONFIG, "untrained")
    monkeypatch.setattr(recipe, "SCENES_VERSION", -1)
    assert compute_fingerprint(CONFIG, "untrained") != before


def test_of_an_untrained_model_only_the_model_counts():
    longer = replace(CONFIG, samples=1280)
    other = replace(CONFIG, model=replace(CONFIG.model, size="miniature"))
    assert compute_fingerprint(longer, "untrained") == compute_fingerprint(CONFIG, "untrained")
    assert compute_fingerprint(other, "untrained") != compute_fingerprint(CONFIG, "untrained")
    assert compute_fingerprint(CONFIG, "cost") != compute_fingerprint(CONFIG, "untrained")


@pytest.mark.parametrize("variant", list_variants())
def test_the_current_fingerprint_is_that_of_a_cell_made_today(variant, tmp_path):
    config = make_run_config(variant, "hour", 7, tmp_path / "run")
    assert compute_current_fingerprint(variant, "hour") == compute_fingerprint(config, variant)


def test_settings_that_were_added_change_no_fingerprint_at_their_neutral_value():
    """The committed cells stay valid."""
    for path in sorted((COMMITTED / "minutes").glob("*-0.json")):
        cell = read_cell(path)
        assert compute_current_fingerprint(cell.variant, cell.scale) == cell.fingerprint, path.name


@pytest.mark.parametrize("name", ["text_crops", "image_crops", "image_masks"])
def test_crops_and_masks_make_another_recipe(name):
    other = replace(CONFIG, data=replace(CONFIG.data, **{name: 0.1}))
    assert compute_fingerprint(other, "prolip") != compute_fingerprint(CONFIG, "prolip")


def test_what_the_recipe_does_not_have_has_no_fingerprint():
    assert compute_current_fingerprint("no such", "hour") is None
    assert compute_current_fingerprint("prolip", "no such") is None
