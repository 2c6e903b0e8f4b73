"""Recipes: each file here is a run by name, with its command and the paper's result. A user's own file is one, too.

Names and first lines are read without running anything, so that help is quick.
"""

from __future__ import annotations

import ast
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from types import ModuleType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from prolip.training.config import TrainConfig

FOLDER = Path(__file__).parent
_NUMBERS = count()


@dataclass(frozen=True)
class Recipe:
    """A run by name: `make` is the function `recipe` of its file, whose keyword arguments are its own choices."""

    name: str
    doc: str
    make: Callable[..., Any]
    file: Path | None = None
    """Of a user's own recipe: its errors are told with their line."""

    @property
    def parameters(self) -> dict[str, tuple[Any, Any]]:
        """The recipe's own keys, each with its type and its default."""
        hints = get_type_hints(self.make)
        parameters = inspect.signature(self.make).parameters.values()
        return {p.name: (hints.get(p.name, str), p.default) for p in parameters}

    def build_config(self, args: Sequence[str] = ()) -> TrainConfig:
        """The run. args: key=value or --key value; the recipe's own keys choose, all others change what it made."""
        from prolip.training import overrides

        own, rest = overrides.take_keys(args, list(self.parameters))
        return overrides.apply_overrides(self._made(own), rest, f"prolip train {self.name}")

    def print_help(self) -> None:
        """Print what it is, its own keys, and those of every run."""
        from prolip.training import overrides

        print(f"{self.doc}\n")
        for name, (kind, default) in self.parameters.items():
            print(f"{name}={default}   ({', '.join(_words(kind))})")
        print()
        overrides.print_keys(self._made({}), f"prolip train {self.name}")

    def _made(self, own: dict[str, str]) -> TrainConfig:
        from dataclasses import replace

        from prolip.training.config import TrainConfig

        chosen = {name: _value(value, self.parameters[name][0], name) for name, value in own.items()}
        with _told_of(self.file):
            made = self.make(**chosen)
        if not isinstance(made, TrainConfig):
            raise ValueError(
                f"recipe {self.name}: recipe() must return a TrainConfig, not {type(made).__name__}"
            )
        return replace(made, out=f"runs/{self.name}") if made.out == TrainConfig.out else made


def list_recipes() -> list[str]:
    """Of the recipes that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))


def read_summary(name: str) -> str:
    """The first line of what a recipe of the package says of itself."""
    return _doc(FOLDER / f"{name}.py").partition("\n")[0]


def load_recipe(name_or_path: str) -> Recipe:
    """A recipe of the package by its name, or a file of the user's.

    "recipes/NAME.py" is the package's, if there is no such file here.
    """
    path = _find(name_or_path)
    ours = path.parent == FOLDER
    file = None if ours else path
    module = import_module(f"prolip.training.recipes.{path.stem}") if ours else _run(path)
    make = getattr(module, "recipe", None)
    if not callable(make):
        raise ValueError(f"{path} has no function recipe() that returns a TrainConfig")
    for parameter in inspect.signature(make).parameters.values():
        if parameter.default is parameter.empty:
            raise ValueError(f"{path}: the argument {parameter.name} of recipe() needs a default")
    recipe = Recipe(path.stem, inspect.cleandoc(module.__doc__ or ""), make, file)
    with _told_of(file):
        for name, (kind, _) in recipe.parameters.items():
            _require_kind(kind, name)
    return recipe


def _run(path: Path) -> ModuleType:
    """The module of a file that lies anywhere. It is among sys.modules, where dataclasses look for theirs."""
    module = ModuleType(f"recipe {next(_NUMBERS)} {path.stem}")
    module.__file__ = str(path)
    content = path.read_bytes()
    sys.modules[module.__name__] = module
    try:
        with _told_of(path):
            exec(compile(content, str(path), "exec"), module.__dict__)
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


@contextmanager
def _told_of(file: Path | None) -> Iterator[None]:
    """Any error of a user's file, even that it ends the program, becomes a sentence with its line."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if file is None:
            raise
        line, story = _line_and_story(error, str(file))
        place = f"{file}, line {line}" if line else str(file)
        raise ValueError(f"{place}: {story}") from error


def _line_and_story(error: BaseException, file: str) -> tuple[int | None, str]:
    if isinstance(error, SyntaxError) and error.filename in (file, None, "<string>"):
        return error.lineno, error.msg
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    kind, text = type(error).__name__, " ".join(str(error).split())
    story = text if type(error) is ValueError and text else f"{kind}: {text}".removesuffix(": ")
    return lines[-1] if lines else None, story


def load_run_recipe(folder: Path) -> Recipe:
    """The recipe that a run folder is: the config that it was started with, in the folder where it lies now."""
    from dataclasses import replace

    from prolip.training.run_folder import read_config

    config = replace(read_config(folder), out=str(folder))
    return Recipe(str(folder), f"The run in {folder}.", lambda: config)


def _find(name_or_path: str) -> Path:
    known = list_recipes()
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


def _require_kind(kind: Any, name: str) -> None:
    plain, _ = _without_none(kind)
    if get_origin(plain) is not Literal and plain not in (bool, int, float, str):
        raise ValueError(
            f"recipe(): {name} must be a Literal, bool, int, float or str (or None beside it), not {kind}"
        )


def _without_none(kind: Any) -> tuple[Any, bool]:
    """int | None -> int, True; any other type as it is."""
    parts = [part for part in get_args(kind) if part is not NoneType]
    if get_origin(kind) in (Union, UnionType) and len(parts) == 1:
        return parts[0], True
    return kind, False


def _words(kind: Any) -> list[str]:
    """What may be written for a value of this type."""
    kind, may_be_none = _without_none(kind)
    if may_be_none:
        return [*_words(kind), "None"]
    if get_origin(kind) is Literal:
        return [str(choice) for choice in get_args(kind)]
    return ["true", "false"] if kind is bool else [kind.__name__]


def _value(text: str, kind: Any, name: str) -> Any:
    """A word of the command line as a recipe's own value: one of a Literal's, bool, int, float or str, or None."""
    kind, may_be_none = _without_none(kind)
    if may_be_none and text == "None":
        return None
    if get_origin(kind) is Literal:
        by_word: dict[str, Any] = {str(choice): choice for choice in get_args(kind)}
    elif kind is bool:
        by_word, text = {"true": True, "false": False}, text.lower()
    else:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"{name}={text}: this is no {kind.__name__}") from None
    if text not in by_word:
        raise ValueError(f"{name}={text}: it must be one of {', '.join(by_word)}")
    return by_word[text]
