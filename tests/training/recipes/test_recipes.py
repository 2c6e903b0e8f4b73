"""Recipes carry the paper's numbers, by name; a user's file is one, too."""

import json
import sys
from typing import get_args

import pytest

from prolip.losses.objective import Objective
from prolip.training import recipes
from prolip.training.config import TrainConfig
from prolip.training.recipes.ablation_96m import Row

NAMES = ["ablation_96m", "b16_12_8b", "b16_1_28b", "finetune", "finetune_small", "long", "miniature", "nano"]
OWN = """
\"\"\"Mine.

A second line.\"\"\"
from __future__ import annotations
from typing import Literal
from prolip.training.recipes.nano import recipe as nano
from dataclasses import replace

def recipe(level: Literal[1, 2] = 1, quick: bool = False, rate: float = 0.5, word: str = "w"):
    return replace(nano(), seed=level, batch_size=16 if quick else 32, out=OUT)
"""

CONFIG = "from pathlib import Path\nfrom prolip.training.config import TrainConfig\ndef recipe(): return TrainConfig"


def config(name, **values):
    return recipes.load_recipe(name).build_config(values)


def own(tmp_path, text=OWN, out="TrainConfig.out"):
    path = tmp_path / "mine.py"
    path.write_text(text.replace("OUT", f"'{out}'"))
    return str(path)


# -- the paper's numbers -----------------------------------------------------------------------------------------------


def numbers(run):
    optimizer, objective = run.optimizer, run.objective
    return {
        "samples": run.samples, "batch": run.batch_size, "lr": optimizer.lr, "betas": optimizer.betas,
        "eps": optimizer.eps, "decay": optimizer.weight_decay, "warmup": optimizer.warmup_steps,
        "final": optimizer.final_lr_fraction, "clip": optimizer.grad_clip_norm, "schedule": optimizer.schedule,
        "precision": run.parallel.precision, "terms": objective.active, "c": objective.c,
        "epsilon": objective.eps, "alphas": (objective.inclusion, objective.masked, objective.vib),
        "masking": (
            run.masking.image_fraction, run.masking.text_fraction, run.masking.patch_mask_ratio,
            run.masking.token_mask_ratio,
        ),
        "augment": run.data.augment,
    }  # fmt: skip


HEADLINE = {
    "samples": 1_280_000_000, "batch": 16_384, "lr": 5e-4, "betas": (0.9, 0.95), "eps": 1e-6, "decay": 0.2,
    "warmup": 10_000, "final": 0.0, "clip": None, "schedule": "cosine", "precision": "bfloat16",
    "terms": ("ppcl", "inclusion", "masked", "vib"), "c": 10.0, "epsilon": -10.0, "alphas": (1e-7, 1e-3, 1e-4),
    "masking": (0.125, 0.125, 0.75, 0.75), "augment": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("b16_1_28b", {}),
        ("b16_12_8b", {"samples": 12_800_000_000, "c": 1000.0, "epsilon": -20.0}),
        ("ablation_96m", {"samples": 96_000_000, "batch": 4096, "c": 1000.0, "epsilon": -20.0}),
        ("finetune", {"lr": 5e-5, "decay": 0.0, "c": 1000.0, "epsilon": -20.0}),
        ("long", {"samples": 10_000_000, "batch": 8192, "lr": 1e-6, "decay": 0.01, "warmup": 200, "epsilon": -100.0}),
    ],
)  # fmt: skip
def test_recipes_have_the_numbers_of_the_paper(name, changes):
    assert numbers(config(name)) == HEADLINE | changes


@pytest.mark.parametrize("name", ["b16_1_28b", "b16_12_8b"])
def test_the_papers_model(name):
    model = config(name).model
    assert (model.size, model.tokenizer) == ("ViT-B-16-768", "timm/ViT-B-16-SigLIP")
    assert (model.uncertainty, model.contrastive_loss, model.init_scale, model.init_logit_bias) == (
        "token",
        "sigmoid",
        10.0,
        -10.0,
    )


ROWS = {
    "clip": ("none", "softmax", {"clip": 1.0}),
    "pml-clip-multihead": ("multihead", "sigmoid", {"pml": 1.0, "clip": 1.0, "vib": 1e-4}),
    "pml": ("token", "sigmoid", {"pml": 1.0, "vib": 1e-4}),
    "pml-clip": ("token", "sigmoid", {"pml": 1.0, "clip": 1.0, "vib": 1e-4}),
    "ppcl": ("token", "sigmoid", {"ppcl": 1.0, "vib": 1e-4}),
    "ppcl-inclusion": ("token", "sigmoid", {"ppcl": 1.0, "inclusion": 1e-7, "vib": 1e-4}),
    "ppcl-masked": ("token", "sigmoid", {"ppcl": 1.0, "masked": 1e-3, "vib": 1e-4}),
    "prolip": ("token", "sigmoid", {"ppcl": 1.0, "inclusion": 1e-7, "masked": 1e-3, "vib": 1e-4}),
}
WEIGHTS = ("ppcl", "siglip", "pml", "clip", "inclusion", "masked", "vib")


@pytest.mark.parametrize("row", ROWS)
def test_rows_of_the_ablation(row):
    run = config("ablation_96m", row=row)
    uncertainty, contrast, terms = ROWS[row]
    assert (run.model.uncertainty, run.model.contrastive_loss) == (uncertainty, contrast)
    assert {name: w for name in WEIGHTS if (w := getattr(run.objective, name))} == terms
    assert run.model.init_scale == (1 / 0.07 if "clip" in row else None)
    assert row in run.out
    assert f"    {row} " in recipes.load_recipe("ablation_96m").doc


def test_the_ablation_has_these_rows():
    assert set(get_args(Row)) == set(ROWS)
    assert config("ablation_96m").steps == 23_437


@pytest.mark.parametrize(
    ("start", "hub_id"),
    [
        ("siglip-b16", "timm/ViT-B-16-SigLIP"),
        ("siglip-l16", "timm/ViT-L-16-SigLIP-256"),
        ("siglip-so400m", "timm/ViT-SO400M-14-SigLIP"),
        ("clip-h14", "apple/DFN5B-CLIP-ViT-H-14"),
    ],
)
def test_starts_of_fine_tuning(start, hub_id):
    model = config("finetune", pretrained=start).model
    assert (model.pretrained, model.image_size) == (hub_id, 224)
    assert f"{start} " in recipes.load_recipe("finetune").doc


def test_longprolip_starts_from_the_release():
    model = config("long").model
    assert (model.pretrained, model.context_length) == ("SanghyukChun/ProLIP-ViT-B-16-DC-1B-12_8B", 256)


def test_nano_is_small_and_whole():
    run = config("nano")
    assert (run.steps, run.checkpoint.every_steps, run.held_out.every_steps) == (20, 5, 10)
    assert run.objective == Objective()
    assert run.masking == TrainConfig().masking


# -- loading -----------------------------------------------------------------------------------------------------------


def test_names():
    assert recipes.list_recipes() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_says_what_it_is_and_goes_to_json(name):
    recipe = recipes.load_recipe(name)
    assert recipes.read_summary(name) == recipe.doc.partition("\n")[0] != ""
    name = {"finetune_small": "finetune-small"}.get(name, name)  # hyphens and underscores are the same
    assert f"prolip train {name}" in recipe.doc
    assert "torchrun" in recipe.doc
    run = recipe.build_config()
    assert TrainConfig.from_dict(json.loads(json.dumps(run.to_dict()))) == run
    assert run.out.startswith(f"runs/{name}")


def test_parameters_of_the_recipe_and_keys_of_the_run():
    run = config("ablation_96m", row="pml", seed=3, out="here", **{"optimizer.lr": 1e-3})
    assert (run.objective.pml, run.optimizer.lr, run.seed, run.out) == (1.0, 1e-3, 3, "here")


def test_load_recipe_from_a_file(tmp_path):
    recipe = recipes.load_recipe(own(tmp_path, out=TrainConfig.out))
    assert (recipe.name, recipe.doc) == ("mine", "Mine.\n\nA second line.")
    run = recipe.build_config({"level": 2, "quick": True, "rate": 1e-3, "batch_size": 8})
    assert (run.seed, run.batch_size, run.out) == (2, 8, "runs/mine")
    assert recipe.build_config({"quick": True}).batch_size == 16
    assert recipes.load_recipe(own(tmp_path, out="there")).build_config().out == "there"


def test_a_file_with_a_dataclass(tmp_path):
    lines = "@dataclass\nclass Mine:\n    seed: int = 3\n\ndef recipe(level"
    text = OWN.replace("import replace", "import dataclass, replace").replace("def recipe(level", lines)
    path = own(tmp_path, text.replace("seed=level", "seed=Mine().seed"), out="there")
    before = set(sys.modules)
    first, second = recipes.load_recipe(path), recipes.load_recipe(path)
    assert first.build_config().seed == 3
    assert first.make.__module__ != second.make.__module__
    assert {first.make.__module__, second.make.__module__} <= set(sys.modules) - before


def test_recipe_file_that_fails_leaves_no_module(tmp_path):
    before = set(sys.modules)
    with pytest.raises(ValueError, match="line 1") as error:
        recipes.load_recipe(own(tmp_path, "1 / 0"))
    assert isinstance(error.value.__cause__, ZeroDivisionError)
    assert set(sys.modules) == before


def test_parameters_may_be_none(tmp_path):
    choices = (
        "from typing import Optional\ndef recipe(a: int | None = None, b: Optional[Literal['x']] = 'x', level"
    )
    text = OWN.replace("def recipe(level", choices).replace(
        "seed=level", "seed=7 if a is b is None else a or 0"
    )
    recipe = recipes.load_recipe(own(tmp_path, text, out="there"))
    given = ({}, {"a": 5}, {"a": None, "b": None})
    assert [recipe.build_config(values).seed for values in given] == [0, 5, 7]
    for values, message in (
        ({"a": "many"}, "a must be a whole number"),
        ({"b": "y"}, "^b .*'x'"),
    ):
        with pytest.raises(ValueError, match=message):
            recipe.build_config(values)


def test_parameter_without_a_type_has_that_of_its_default(tmp_path):
    recipe = recipes.load_recipe(
        own(tmp_path, OWN.replace("level: Literal[1, 2] = 1", "level=1"), out="there")
    )
    assert recipe.build_config({"level": 5}).seed == 5
    with pytest.raises(ValueError, match="level must be a whole number"):
        recipe.build_config({"level": "5"})


def test_the_packages_recipe_by_its_path_in_the_sources(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert recipes.load_recipe("recipes/nano.py").build_config() == config("nano")
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "nano.py").write_text(OWN.replace("OUT", "'local'"))
    assert recipes.load_recipe("recipes/nano.py").build_config().out == "local"


@pytest.mark.parametrize(
    ("text", "values", "message"),
    [
        ("x = 1", {}, "function recipe"),
        ("def recipe():\n    return 3", {}, "must return a TrainConfig, not int"),
        ("def recipe(n):\n    return n", {}, "the argument n of recipe.. needs a default"),
        ("def recipe(:", {}, "line 1"),
        (OWN, {"level": 3}, "^level .*1, 2"),
        (OWN, {"quick": "maybe"}, "quick must be true or false"),
        (OWN, {"rate": "fast"}, "rate must be a number"),
        (OWN, {"lvel": 3}, "there is no key 'lvel'; did you mean 'level'"),
        ("def recipe(n: list = ()):\n    return n", {}, "n must be a Literal, bool, int, float or str"),
        ("def recipe(n: int | str = 1):\n    return n", {}, r"n must be a Literal.*not int \| str"),
        (
            "def recipe(n: 'absent' = 1):\n    return n",
            {},
            "mine.py: NameError: name 'absent' is not defined",
        ),
        (
            "x = 1\nimport nowhere_at_all",
            {},
            "mine.py, line 2: ModuleNotFoundError: No module named 'nowhere",
        ),
        (
            "def recipe():\n\n    return absent",
            {},
            "mine.py, line 3: NameError: name 'absent' is not defined",
        ),
        ("raise SystemExit(3)", {}, "mine.py, line 1: SystemExit: 3"),
        ("def recipe():\n    raise KeyError('k')", {}, "mine.py, line 2: KeyError: 'k'"),
        ("raise ValueError", {}, "mine.py, line 1: ValueError$"),
        ("raise ValueError('two\\nlines')", {}, "mine.py, line 1: two lines$"),
        ("x = '\0'", {}, "mine.py: source code string cannot contain null bytes"),
        (CONFIG + "(sampels=3)", {}, "mine.py, line 3: TypeError: .*unexpected keyword argument 'sampels'"),
        (CONFIG + "(out=Path('x'))", {}, "mine.py, line 3: out must be a string, not PosixPath.'x'"),
    ],
)
def test_load_recipe_reports_errors_in_the_file_or_its_values(tmp_path, text, values, message):
    with pytest.raises(ValueError, match=message):
        recipes.load_recipe(own(tmp_path, text)).build_config(values)


@pytest.mark.parametrize("name", ["b16", "recipes/b16.py", "/nowhere/nano.py", "nano.txt"])
def test_load_recipe_lists_the_recipes_when_there_is_none(name):
    with pytest.raises(FileNotFoundError, match="the recipes are ablation_96m, b16_12_8b"):
        recipes.load_recipe(name)
