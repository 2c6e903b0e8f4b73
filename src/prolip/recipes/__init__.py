"""Recipes: each file here is a run by name, with its command and the paper's result. A user's own file is one, too.

Names and first lines are read without running anything, so that help is quick.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from prolip.train.config import TrainConfig

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Recipe:
    """A run by name: `make` is the function `recipe` of its file, whose keyword arguments are its own choices."""

    name: str
    doc: str
    make: Callable[..., Any]

    @property
    def choices(self) -> dict[str, tuple[Any, Any]]:
        """The recipe's own keys, each with its type and its default."""
        hints = get_type_hints(self.make)
        parameters = inspect.signature(self.make).parameters.values()
        return {p.name: (hints.get(p.name, str), p.default) for p in parameters}

    def config(self, args: Sequence[str] = ()) -> TrainConfig:
        """The run. args: key=value or --key value; the recipe's own keys choose, all others change what it made."""
        from prolip.train import arguments

        own, rest = arguments.take(args, list(self.choices))
        return arguments.parse(self._made(own), rest, f"prolip train {self.name}")

    def show(self) -> None:
        """Print what it is, its own keys, and those of every run."""
        from prolip.train import arguments

        print(f"{self.doc}\n")
        for name, (kind, default) in self.choices.items():
            print(f"{name}={default}   ({', '.join(_words(kind))})")
        print()
        arguments.show_keys(self._made({}), f"prolip train {self.name}")

    def _made(self, own: dict[str, str]) -> TrainConfig:
        from dataclasses import replace

        from prolip.train.config import TrainConfig

        chosen = {name: _value(value, self.choices[name][0], name) for name, value in own.items()}
        made = self.make(**chosen)
        if not isinstance(made, TrainConfig):
            raise ValueError(
                f"recipe {self.name}: recipe() must return a TrainConfig, not {type(made).__name__}"
            )
        return replace(made, out=f"runs/{self.name}") if made.out == TrainConfig.out else made


def names() -> list[str]:
    """Of the recipes that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))


def first_line(name: str) -> str:
    """The first line of what a recipe of the package says of itself."""
    return _doc(FOLDER / f"{name}.py").partition("\n")[0]


def load(name_or_path: str) -> Recipe:
    """A recipe of the package by its name, or a file of the user's.

    "recipes/NAME.py" is the package's, if there is no such file here.
    """
    path = _find(name_or_path)
    ours = path.parent == FOLDER
    module = import_module(f"prolip.recipes.{path.stem}") if ours else _run(path)
    make = getattr(module, "recipe", None)
    if not callable(make):
        raise ValueError(f"{path} has no function recipe() that returns a TrainConfig")
    for parameter in inspect.signature(make).parameters.values():
        if parameter.default is parameter.empty:
            raise ValueError(f"{path}: the argument {parameter.name} of recipe() needs a default")
    return Recipe(path.stem, inspect.cleandoc(module.__doc__ or ""), make)


def _run(path: Path) -> ModuleType:
    """The module of a file that lies anywhere."""
    module = ModuleType(f"recipe {path.stem}")
    module.__file__ = str(path)
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except SyntaxError as error:
        raise ValueError(f"{path}, line {error.lineno}: {error.msg}") from error
    return module


def of_run(folder: Path) -> Recipe:
    """The recipe that a run folder is: the config that it was started with, in the folder where it lies now."""
    from dataclasses import replace

    from prolip.train.run_folder import read_config

    config = replace(read_config(folder), out=str(folder))
    return Recipe(str(folder), f"The run in {folder}.", lambda: config)


def _find(name_or_path: str) -> Path:
    known = names()
    if name_or_path in known:
        return FOLDER / f"{name_or_path}.py"
    path = Path(name_or_path)
    if path.is_file() and path.suffix == ".py":
        return path
    if path.parent.name == "recipes" and path.suffix == ".py" and path.stem in known:
        return FOLDER / path.name
    raise FileNotFoundError(
        f"there is no recipe, .py file or run folder {name_or_path}; the recipes are {', '.join(known)}"
    )


def _doc(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def _words(kind: Any) -> list[str]:
    """What may be written for a value of this type."""
    if get_origin(kind) is Literal:
        return [str(choice) for choice in get_args(kind)]
    return ["true", "false"] if kind is bool else [kind.__name__]


def _value(text: str, kind: Any, name: str) -> Any:
    """A word of the command line as a recipe's own value: one of a Literal's, bool, int, float or str."""
    if get_origin(kind) is Literal:
        by_word: dict[str, Any] = {str(choice): choice for choice in get_args(kind)}
    elif kind is bool:
        by_word, text = {"true": True, "false": False}, text.lower()
    elif kind in (int, float, str):
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"{name}={text}: this is no {kind.__name__}") from None
    else:
        raise ValueError(f"recipe(): {name} must be a Literal, bool, int, float or str, not {kind}")
    if text not in by_word:
        raise ValueError(f"{name}={text}: it must be one of {', '.join(by_word)}")
    return by_word[text]
