"""`prolip train`: a recipe and key=value overrides."""

from __future__ import annotations

from pathlib import Path

TRAIN_HELP = """usage: prolip train RECIPE [key=value ...] [--resume]

Train a model with a recipe: a name below, a .py file, or the folder of a run to resume.

Example: prolip train miniature optimizer.lr=1e-3 out=runs/mine
Example: torchrun --nproc-per-node 8 -m prolip train b16_1_28b data.source='shards/{00000..00999}.tar' --resume

--resume continues from the last checkpoint of the run; so does the folder of a run as RECIPE.
(A folder with the name of a recipe is passed as ./nano: nano alone is the recipe.)
prolip train RECIPE --help describes a recipe and lists all keys with their values.

recipes:"""


def train(args: list[str]) -> None:
    """Parse the arguments of `prolip train` and train.

    The keys belong to the recipe, so that tyro can't know them beforehand.

    Args:
        args: The words after `prolip train`.

    Raises:
        SystemExit: 0 after help was printed.
    """
    from prolip.training import recipes

    needs_help = any(word in ("-h", "--help") for word in args)
    words = [word for word in args if word not in ("-h", "--help", "--resume")]
    if not words:
        print(TRAIN_HELP)
        for name in recipes.list_recipes():
            print(f"  {name:13} {recipes.read_summary(name)}")
        raise SystemExit(0)
    folder = Path(words[0]).expanduser()
    is_run = words[0] not in recipes.list_recipes() and folder.is_dir()
    recipe = recipes.load_run_recipe(folder) if is_run else recipes.load_recipe(words[0])
    if needs_help:
        recipe.print_help()
        raise SystemExit(0)
    config = recipe.build_config(words[1:])

    from prolip.training import trainer

    trainer.train(config, resume=is_run or "--resume" in args)
