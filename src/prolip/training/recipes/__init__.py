"""Recipes: training configurations by name, each a file with its launch command; a user's file is one, too.

Names and first lines are read without importing the recipes, so that help is fast.
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
"""The folder of the package's recipes."""
_MODULE_NUMBERS = count()
"""Numbers that make the module names of users' files unique."""


@dataclass(frozen=True)
class Recipe:
    """A training configuration by name.

    Attributes:
        name: Its name, or the path of a run folder.
        doc: The docstring of its file.
        make: The function `recipe` of its file; its keyword arguments are the keys of the recipe itself.
        file: The file, if it is a user's; errors in it are reported with their line.
    """

    name: str
    doc: str
    make: Callable[..., Any]
    file: Path | None = None

    @property
    def parameters(self) -> dict[str, tuple[Any, Any]]:
        """The recipe's own keys, each with its type and its default."""
        hints = get_type_hints(self.make)
        parameters = inspect.signature(self.make).parameters.values()
        return {p.name: (hints.get(p.name, str), p.default) for p in parameters}

    def build_config(self, args: Sequence[str] = ()) -> TrainConfig:
        """Make the config of a run.

        Args:
            args: key=value or --key value. Keys of the recipe are passed to it; all others change the config it made.

        Returns:
            The config. Its run folder is runs/NAME unless the recipe or `args` set another.

        Raises:
            ValueError: A key is unknown, a value is impossible, or the recipe fails.
        """
        from prolip.training import overrides

        recipe_values, other_args = overrides.take_keys(args, list(self.parameters))
        config = self._make_config(recipe_values)
        return overrides.apply_overrides(config, other_args, f"prolip train {self.name}")

    def print_help(self) -> None:
        """Print the description of the recipe, its own keys, and the keys of every run."""
        from prolip.training import overrides

        print(f"{self.doc}\n")
        for name, (kind, default) in self.parameters.items():
            print(f"{name}={default}   ({', '.join(_list_choices(kind))})")
        print()
        overrides.print_keys(self._make_config({}), f"prolip train {self.name}")

    def _make_config(self, recipe_values: dict[str, str]) -> TrainConfig:
        """Call the recipe's function, and set the run folder to runs/NAME if it sets none.

        Args:
            recipe_values: The recipe's own keys that the user set, with their values as text.

        Raises:
            ValueError: A value has the wrong type, or the function fails or returns something else than a
                TrainConfig.
        """
        from dataclasses import replace

        from prolip.training.config import TrainConfig

        arguments = {
            name: _parse_value(text, self.parameters[name][0], name) for name, text in recipe_values.items()
        }
        with _report_errors_with_line(self.file):
            config = self.make(**arguments)
        if not isinstance(config, TrainConfig):
            raise ValueError(
                f"recipe {self.name}: recipe() must return a TrainConfig, not {type(config).__name__}"
            )
        return replace(config, out=f"runs/{self.name}") if config.out == TrainConfig.out else config


def list_recipes() -> list[str]:
    """Names of the recipes that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))


def read_summary(name: str) -> str:
    """Read the first line of the docstring of a recipe of the package, without importing it.

    Args:
        name: One of `list_recipes`.

    Returns:
        The line.
    """
    return _read_docstring(FOLDER / f"{name}.py").partition("\n")[0]


def load_recipe(name_or_path: str) -> Recipe:
    """Load a recipe.

    Args:
        name_or_path: The name of a recipe of the package, or a .py file. "recipes/NAME.py" names a recipe of the
            package if there is no such file.

    Returns:
        The recipe.

    Raises:
        FileNotFoundError: There is no such recipe or file.
        ValueError: The file fails, or has no function recipe() whose arguments all have a default and a simple type.
    """
    path = _find_recipe_file(name_or_path)
    is_packaged = path.parent == FOLDER
    file = None if is_packaged else path
    module = import_module(f"prolip.training.recipes.{path.stem}") if is_packaged else _execute_file(path)
    make = getattr(module, "recipe", None)
    if not callable(make):
        raise ValueError(f"{path} must define a function recipe() that returns a TrainConfig")
    for parameter in inspect.signature(make).parameters.values():
        if parameter.default is parameter.empty:
            raise ValueError(f"{path}: the argument {parameter.name} of recipe() needs a default")
    recipe = Recipe(path.stem, inspect.cleandoc(module.__doc__ or ""), make, file)
    with _report_errors_with_line(file):
        for name, (kind, _) in recipe.parameters.items():
            _require_supported_type(kind, name)
    return recipe


def _execute_file(path: Path) -> ModuleType:
    """Execute a user's file as a module. It is put into sys.modules, where dataclasses look up their module.

    Raises:
        ValueError: The file fails; the message has its line.
    """
    module = ModuleType(f"recipe {next(_MODULE_NUMBERS)} {path.stem}")
    module.__file__ = str(path)
    code = path.read_bytes()
    sys.modules[module.__name__] = module
    try:
        with _report_errors_with_line(path):
            exec(compile(code, str(path), "exec"), module.__dict__)
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


@contextmanager
def _report_errors_with_line(file: Path | None) -> Iterator[None]:
    """Turn any error inside the `with` block, also SystemExit, into a ValueError that names file and line.

    Args:
        file: A user's file, in which the error arose; None: errors pass unchanged.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        if file is None:
            raise
        line, message = _locate_error(error, str(file))
        location = f"{file}, line {line}" if line else str(file)
        raise ValueError(f"{location}: {message}") from error


def _locate_error(error: BaseException, file: str) -> tuple[int | None, str]:
    """(line, message) of an error: the line of `file` that raised it or called what did; None if none of `file` did."""
    if isinstance(error, SyntaxError) and error.filename in (file, None, "<string>"):
        return error.lineno, error.msg
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    kind, text = type(error).__name__, " ".join(str(error).split())
    message = text if type(error) is ValueError and text else f"{kind}: {text}".removesuffix(": ")
    return lines[-1] if lines else None, message


def load_run_recipe(folder: Path) -> Recipe:
    """Load the config that a run was started with, as a recipe that continues in the same folder.

    Args:
        folder: Run folder.

    Returns:
        A recipe without keys of its own.
    """
    from dataclasses import replace

    from prolip.training.run_folder import read_config

    config = replace(read_config(folder), out=str(folder))
    return Recipe(str(folder), f"The run in {folder}.", lambda: config)


def _find_recipe_file(name_or_path: str) -> Path:
    """The file of a recipe of the package or of a user (see `load_recipe`); FileNotFoundError if there is none."""
    recipes = list_recipes()
    if name_or_path in recipes:
        return FOLDER / f"{name_or_path}.py"
    path = Path(name_or_path)
    if path.is_file() and path.suffix == ".py":
        return path
    if path.parent.name == "recipes" and path.suffix == ".py" and path.stem in recipes:
        return FOLDER / path.name
    raise FileNotFoundError(
        f"there is no recipe, .py file or run folder {name_or_path}; the recipes are {', '.join(recipes)}"
    )


def _read_docstring(path: Path) -> str:
    """The docstring of a Python file, read without executing it; "" if it has none."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def _require_supported_type(kind: Any, name: str) -> None:
    """Raise a ValueError if the command line can't parse the type hint `kind` of the argument `name`."""
    required_kind, _ = _split_off_none(kind)
    if get_origin(required_kind) is not Literal and required_kind not in (bool, int, float, str):
        raise ValueError(
            f"recipe(): {name} must be a Literal, bool, int, float or str (or one of these | None), not {kind}"
        )


def _split_off_none(kind: Any) -> tuple[Any, bool]:
    """Split None off a type hint: int | None -> (int, True). A hint without None is returned with False."""
    members = [member for member in get_args(kind) if member is not NoneType]
    if get_origin(kind) in (Union, UnionType) and len(members) == 1:
        return members[0], True
    return kind, False


def _list_choices(kind: Any) -> list[str]:
    """List what the command line accepts for a type hint, for the help: the choices, or the name of the type."""
    kind, may_be_none = _split_off_none(kind)
    if may_be_none:
        return [*_list_choices(kind), "None"]
    if get_origin(kind) is Literal:
        return [str(choice) for choice in get_args(kind)]
    return ["true", "false"] if kind is bool else [kind.__name__]


def _parse_value(text: str, kind: Any, name: str) -> Any:
    """Parse an argument of the command line: one of a Literal's choices, a bool, int, float, str, or None.

    Args:
        text: The value as the user wrote it.
        kind: Type hint of the argument.
        name: Name of the argument, for errors.

    Raises:
        ValueError: The text is no value of this type.
    """
    kind, may_be_none = _split_off_none(kind)
    if may_be_none and text == "None":
        return None
    if get_origin(kind) is Literal:
        choices: dict[str, Any] = {str(choice): choice for choice in get_args(kind)}
    elif kind is bool:
        choices, text = {"true": True, "false": False}, text.lower()
    else:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"{name}={text}: expected a value of type {kind.__name__}") from None
    if text not in choices:
        raise ValueError(f"{name}={text}: the value must be one of {', '.join(choices)}")
    return choices[text]
