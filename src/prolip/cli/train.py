"""`prolip train`: a recipe and flags that change it."""

from __future__ import annotations

from prolip.cli.parser import HELP_WORDS

TRAIN_HELP = """usage: prolip train RECIPE [--resume] [flags]

Train a model with a recipe: a name below, a .py file, or the folder of a run to resume.

Example: prolip train miniature --optimizer.lr 1e-3 --out runs/mine
Example: torchrun --nproc-per-node 8 -m prolip train b16_1_28b --data.source 'shards/{00000..00999}.tar' --resume

--resume continues from the last checkpoint of the run; so does the folder of a run as RECIPE.
A .py file is executed: use only files that you trust. A command (--data.source pipe:...) in the folder of a run that
others wrote is shown and refused, unless you add --trust-pipe.
(A folder with the name of a recipe is passed as ./nano: nano alone is the recipe.)
prolip train RECIPE --help describes a recipe and its most common flags, --help-all every flag.

recipes:"""


def train(args: list[str]) -> None:
    """Parse the arguments of `prolip train` and train.

    The flags depend on the recipe, so that tyro can't know them beforehand.

    Args:
        args: The words after `prolip train`.

    Raises:
        SystemExit: 0 after help was printed; 2, after a message, for a value that tyro can't parse.
        ValueError: The first word is no recipe, or a flag doesn't exist.
    """
    from prolip.training import recipes

    words = [word for word in args if word not in (*HELP_WORDS, "--resume", "--trust-pipe")]
    if not words:
        print(TRAIN_HELP)
        for name in recipes.list_recipes():
            print(f"  {name:14} {recipes.read_summary(name)}")
        raise SystemExit(0)
    if words[0].startswith("-"):
        raise ValueError(f"{words[0]} stands before the recipe: write prolip train RECIPE {words[0]} ...")
    recipe = recipes.load_recipe(words[0])

    from prolip.cli import train_flags

    if any(word in HELP_WORDS for word in args):
        train_flags.print_help(recipe, words[1:], is_complete="--help-all" in args)
        raise SystemExit(0)
    config = train_flags.parse_flags(recipe, words[1:])

    from prolip.training import run_folder, trainer

    is_trusted = not recipe.is_run or "--trust-pipe" in args
    unconfirmed = () if is_trusted else run_folder.list_unconfirmed_commands(config, words)
    trainer.train(config, resume=recipe.is_run or "--resume" in args, unconfirmed=unconfirmed)
