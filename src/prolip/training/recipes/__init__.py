"""Recipes: training configurations by name, each a file with its launch command; a user's file is one, too.

Names and first lines are read without importing the recipes, so that help is fast.
"""

from __future__ import annotations

import ast
import inspect
import sys
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, make_dataclass, replace
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
        make: The function `recipe` of its file; its keyword arguments are the parameters of the recipe itself.
        file: The file, if it is a user's; errors in it are reported with their line.
        is_run: Whether it is the config of a run folder, in which training continues.
        finish: The function `finish` of its file, see `finish_config`; None: it has none.
    """

    name: str
    doc: str
    make: Callable[..., Any]
    file: Path | None = None
    is_run: bool = False
    finish: Callable[[TrainConfig, Collection[str]], TrainConfig] | None = None

    @property
    def parameters(self) -> dict[str, tuple[Any, Any]]:
        """The recipe's own parameters, each with its type and its default."""
        hints = get_type_hints(self.make)
        parameters = inspect.signature(self.make).parameters.values()
        return {p.name: (hints.get(p.name, type(p.default)), p.default) for p in parameters}

    def build_config(self, values: Mapping[str, object] | None = None) -> TrainConfig:
        """Make the config of a run.

        Args:
            values: Parameters of the recipe by name ("variant"), and changes of the config that it makes by dotted key
                ("optimizer.lr"), as `apply_overrides` takes them.

        Returns:
            The config. Its run folder is runs/NAME unless the recipe or `values` set another.

        Raises:
            ValueError: A key is unknown, a value is impossible, or the recipe fails.
        """
        from prolip.training import overrides

        config = self.make_config(values or {})
        other_values = {name: value for name, value in (values or {}).items() if name not in self.parameters}
        config = overrides.apply_overrides(config, other_values, list(self.parameters))
        return self.finish_config(config, overrides.list_set_keys(other_values))

    def make_config(self, values: Mapping[str, object]) -> TrainConfig:
        """Make the config of the recipe, before any changes.

        Args:
            values: Parameters of the recipe by name; other names are ignored.

        Returns:
            The config.

        Raises:
            ValueError: A value is impossible, or the recipe fails.
        """
        return self._make_config({name: value for name, value in values.items() if name in self.parameters})

    def finish_config(self, config: TrainConfig, keys: Collection[str]) -> TrainConfig:
        """Let the recipe choose what depends on the user's data, if it has a function finish(config, keys).

        Args:
            config: With the user's changes.
            keys: The keys that the user has set, which the recipe leaves as they are.

        Returns:
            The config of the run.

        Raises:
            ValueError: The recipe refuses the config, or fails.
        """
        if self.finish is None:
            return config
        with _report_errors_with_line(self.file):
            return self.finish(config, frozenset(keys))

    def _make_config(self, values: Mapping[str, object]) -> TrainConfig:
        """Call the recipe's function, and set the run folder to runs/NAME if it sets none.

        Args:
            values: Values of the recipe's own parameters.

        Raises:
            ValueError: A value has the wrong type, or the function fails or returns something else than a
                TrainConfig.
        """
        from prolip.configs import require_field_types
        from prolip.training.config import TrainConfig

        hints = [(name, self.parameters[name][0]) for name in values]
        require_field_types(make_dataclass("Parameters", hints)(**values))
        with _report_errors_with_line(self.file):
            config = self.make(**values)
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
        name_or_path: The name of a recipe of the package, a .py file, which is executed, or the folder of a run to
            continue.
            "recipes/NAME.py" names a recipe of the package if there is no such file. A folder with the name of a recipe
            is passed as ./nano: nano alone is the recipe.

    Returns:
        The recipe.

    Raises:
        FileNotFoundError: There is no such recipe or file.
        ValueError: The file fails, or has no function recipe() whose arguments all have a default and a simple type.
            The folder is not that of a run.
    """
    folder = Path(name_or_path).expanduser()
    if name_or_path.replace("-", "_") not in list_recipes() and folder.is_dir():
        return _load_run(folder)
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
    doc, finish = inspect.cleandoc(module.__doc__ or ""), getattr(module, "finish", None)
    recipe = Recipe(path.stem, doc, make, file, finish=finish)
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


def _load_run(folder: Path) -> Recipe:
    """Load the config that a run was started with, as a recipe without parameters that continues in its folder."""
    from prolip.training.run_folder import read_config

    config = replace(read_config(folder), out=str(folder))
    return Recipe(str(folder), f"The run in {folder}.", lambda: config, is_run=True)


def _find_recipe_file(name_or_path: str) -> Path:
    """The file of a recipe of the package or of a user (see `load_recipe`); FileNotFoundError if there is none."""
    recipes = list_recipes()
    name = name_or_path.replace("-", "_")  # as in flags, hyphens and underscores are the same
    if name in recipes:
        return FOLDER / f"{name}.py"
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
    required_kind = _drop_none(kind)
    if get_origin(required_kind) is not Literal and required_kind not in (bool, int, float, str):
        raise ValueError(
            f"recipe(): {name} must be a Literal, bool, int, float or str (or one of these | None), not {kind}"
        )


def _drop_none(kind: Any) -> Any:
    """A type hint without None: int | None -> int. Others are returned as they are."""
    members = [member for member in get_args(kind) if member is not NoneType]
    return members[0] if get_origin(kind) in (Union, UnionType) and len(members) == 1 else kind
