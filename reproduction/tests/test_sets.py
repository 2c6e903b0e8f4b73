import pytest

from prolip.embeddings.embedder import Embedder
from prolip.evaluation import robustness
from reproduction import sets


@pytest.fixture(scope="module")
def embedder(scenes_model):
    return Embedder(model=scenes_model, progress=False)


def test_zero_shot_is_that_of_the_evaluator(embedder, ground):
    data = ground.task("colour_shape")
    wanted = robustness.evaluate(
        embedder.model, data, occluded=(0.0, 0.1), corruptions=(), pgd_steps=(), progress=False
    )
    assert sets.zero_shot(embedder, ground)["colour_shape"]["all_prompts"] == wanted["clean"]["accuracy"]
    hidden = sets.hidden(embedder, ground)
    assert [hidden[0]["uncertainty"], hidden[-1]["uncertainty"]] == [
        row["uncertainty"] for row in wanted["occlusion"]
    ]


def test_nothing_rises_where_nothing_was_done(embedder, ground):
    assert sets.hidden(embedder, ground)[0]["rises"] == 0.0
    clean, *attacked = sets.attacked(embedder, ground)
    assert (clean["steps"], clean["rises"]) == (0, 0.0)
    assert [row["steps"] for row in attacked] == [1, 2]
    assert all(row["n"] == 4 for row in attacked)


def test_bprw_stands_beside_its_controls(embedder, ground):
    rows = sets.prompt_rows(embedder, ground)["rows"]
    for shots in (0, 5, 9):
        assert {f"BPRW, {shots} images", f"BPRW, {shots} images, equal variances"} <= set(rows)
    assert {"centroid of 5 images, no prompts", "centroid of 9 images, no prompts"} <= set(rows)
