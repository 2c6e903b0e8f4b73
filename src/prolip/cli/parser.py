"""Command lines from functions and config dataclasses: help without noise, --help-all, "did you mean".

A command is a function; a parameter whose type is a dataclass contributes the dataclass's fields as options. Help texts
are the docstrings below the fields, and the Args of the function.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from prolip.configs import ADVANCED, suggest, union_members

if TYPE_CHECKING:
    from tyro.constructors import StructConstructorSpec, StructTypeInfo

Commands = Mapping[str, Callable[..., None]]
"""Functions by the name of their command."""

HELP_WORDS = ("-h", "--help", "--help-all")
WIDTH = 100
"""Columns of the list of commands."""
SYNONYMS = {
    "topk": "k", "top-k": "k", "limit": "k", "output": "out", "output-dir": "out", "steps": "samples",
    "max-steps": "samples", "epochs": "samples", "num-epochs": "samples", "max-epochs": "samples",
}  # fmt: skip
"""Names that other programs give to options, and ours."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """A parameter of a command, or a field of a config."""

    name: str
    """Name of the parameter."""
    hint: Any
    """Its type, with annotations."""
    default: Any
    """Its default; `MISSING`: it is required."""
    help: str
    """Its description."""
    is_advanced: bool
    """Whether only --help-all shows it."""

    @property
    def flags(self) -> list[str]:
        """The words that set it: --batch-size; -k; of a boolean that isn't false by default also --no-figures."""
        metadata = get_args(self.hint)[1:] if hasattr(self.hint, "__metadata__") else ()
        name = next((m.name for m in metadata if getattr(m, "name", None)), self.name).replace("_", "-")
        aliases = [alias for m in metadata for alias in getattr(m, "aliases", None) or ()]
        short = [f"-{name}"] if len(name) == 1 else []
        can_be_negated = bool in union_members(_strip_annotations(self.hint)) and self.default is not False
        return [f"--{name}", *short, *aliases, *([f"--no-{name}"] if can_be_negated else [])]


def run_one_of(commands: Commands, prog: str, description: str, args: list[str]) -> None:
    """Run one of several commands, or list them if there is no word but --help.

    Args:
        commands: The commands.
        prog: Name of the program or group.
        description: Text above the list.
        args: Words of the command line, the name of the command first.

    Raises:
        ValueError: There is no such command or option; the message names the nearest one.
        SystemExit: After help was printed, and for words that can't be parsed.
    """
    if not args or args[0] in HELP_WORDS:
        _print_commands(commands, prog, description)
        raise SystemExit(0)
    run_command(_find_command(commands, prog, args[0]), f"{prog} {args[0]}", args[1:])


def run_command(command: Callable[..., None], prog: str, args: list[str]) -> None:
    """Parse the words of a command line, and run the command.

    Args:
        command: The function.
        prog: Its name in the help, such as "prolip embed".
        args: The words after it.

    Raises:
        ValueError: There is no option of that name, or a config refuses a value.
        SystemExit: After help was printed, and for words that can't be parsed.
    """
    import tyro

    needs_help = any(word in HELP_WORDS for word in args)
    hide_advanced = needs_help and "--help-all" not in args
    if not needs_help:
        _require_known_flags(command, prog, args)
    description = inspect.cleandoc(command.__doc__ or "").split("\nArgs:")[0].strip()
    if hide_advanced and any(option.is_advanced for option in iter_flat_options(command)):
        description += f"\n\nRarely used options: {prog} --help-all"
    registry = tyro.constructors.ConstructorRegistry()
    registry.struct_rule(lambda info: _make_struct(info, hide_advanced))
    tyro.cli(
        command, prog=prog, description=description, args=["--help"] if needs_help else args, registry=registry,
        config=(tyro.conf.DisallowNone,),
    )  # fmt: skip


def iter_options(owner: Callable[..., Any]) -> Iterator[Option]:
    """Iterate over the parameters of a function, or the fields of a dataclass: its own first, then inherited ones.

    Args:
        owner: The function or the dataclass. Fields that a config inherits from another one count as advanced.

    Yields:
        The options.
    """
    hints, docs = get_type_hints(owner, include_extras=True), _read_docs(owner)
    if isinstance(owner, type):
        own = inspect.get_annotations(owner)
        for field in sorted(fields(owner), key=lambda field: field.name not in own):
            default = field.default if field.default_factory is MISSING else field.default_factory()
            metadata = getattr(hints[field.name], "__metadata__", ())
            yield Option(
                name=field.name, hint=hints[field.name], default=default, help=docs.get(field.name, ""),
                is_advanced=default is not MISSING and (ADVANCED in metadata or field.name not in own),
            )  # fmt: skip
        return
    for name, parameter in inspect.signature(owner).parameters.items():
        default = MISSING if parameter.default is inspect.Parameter.empty else parameter.default
        metadata = getattr(hints[name], "__metadata__", ())
        text = docs.get(name) or next((m.help for m in metadata if getattr(m, "help", None)), "")
        yield Option(name=name, hint=hints[name], default=default, help=text, is_advanced=False)


def iter_flat_options(command: Callable[..., Any]) -> Iterator[Option]:
    """Iterate over the options of a command, those of its configs included.

    Args:
        command: The function.

    Yields:
        The options.
    """
    for option in iter_options(command):
        config = _strip_annotations(option.hint)
        if isinstance(config, type) and is_dataclass(config):
            yield from iter_flat_options(config)
        else:
            yield option


def _find_command(commands: Commands, prog: str, name: str) -> Callable[..., None]:
    """Find a command by its name; ValueError if there is none, with the nearest name."""
    if name not in commands:
        raise ValueError(
            f"no command {name!r}: {suggest(name, commands) or f'{prog} --help lists the commands'}"
        )
    return commands[name]


def _print_commands(commands: Commands, prog: str, description: str) -> None:
    """Print the list of commands, each with the first paragraph of its docstring."""
    print(f"usage: {prog} COMMAND ...\n\n{description}\n\ncommands:")
    indent = max(map(len, commands)) + 4
    for name, command in commands.items():
        summary = inspect.cleandoc(command.__doc__ or "").split("\n\n")[0]
        lines = textwrap.wrap(" ".join(summary.split()), WIDTH - indent)
        print(f"  {name}".ljust(indent) + f"\n{' ' * indent}".join(lines))
    print(f"\nOptions of a command: {prog} COMMAND --help")


def _require_known_flags(command: Callable[..., None], prog: str, args: list[str]) -> None:
    """Raise ValueError if a word looks like an option, but is none; the message names the nearest one."""
    known = [flag for option in iter_flat_options(command) for flag in option.flags]
    for word in args:
        flag = word.partition("=")[0].replace("_", "-")
        if flag.startswith("--") and flag not in known:
            hint = _suggest_flag(flag, known) or f"{prog} --help-all lists the options"
            raise ValueError(f"no option {flag} of {prog}: {hint}")


def _suggest_flag(flag: str, known: list[str]) -> str:
    """Suggest what a flag may mean: by its synonym, by its spelling, or by a common beginning; "" if nothing fits."""
    word = flag.strip("-")
    name = SYNONYMS.get(word)
    if f"--{name}" in known:
        return f"did you mean {f'-{name} or --{name}' if f'-{name}' in known else f'--{name}'}?"
    if hint := suggest(flag, known):
        return hint
    names = [other for other in known if len(other.strip("-")) > 1]
    related = [other for other in names if word.startswith(other.strip("-")) or other.startswith(flag)]
    return f"did you mean {' or '.join(related[:2])}?" if related and word else ""


def _make_struct(info: StructTypeInfo, hide_advanced: bool) -> StructConstructorSpec | None:
    """The rule by which tyro makes options of commands and configs; None for other types."""
    from tyro.conf import FlagCreatePairsOff, Suppress, arg
    from tyro.constructors import MISSING_NONPROP, StructConstructorSpec, StructFieldSpec

    is_config = isinstance(info.type, type) and is_dataclass(info.type)
    if not is_config and not inspect.isfunction(info.type):
        return None
    specs = []
    for option in iter_options(info.type):
        hint, default = option.hint, option.default
        if is_dataclass(_strip_annotations(hint)):
            hint = Annotated[hint, arg(name="")]  # its fields have no prefix
        elif default is False:
            hint = Annotated[hint, arg(help_behavior_hint=""), FlagCreatePairsOff]
        elif default in (None, (), ""):
            hint = Annotated[hint, arg(help_behavior_hint="")]
        elif default is MISSING and get_origin(_strip_annotations(hint)) in (tuple, list):
            hint = Annotated[hint, arg(help_behavior_hint="(required)")]  # tyro takes () for the default
        if len(option.name) == 1:
            hint = Annotated[hint, arg(aliases=[f"-{option.name}"])]  # -k as well as --k
        if metavar := _make_tuple_metavar(option.hint):
            hint = Annotated[hint, arg(metavar=metavar)]
        if option.is_advanced and hide_advanced:
            hint = Annotated[hint, Suppress]
        specs.append(
            StructFieldSpec(
                name=option.name, type=hint, default=MISSING_NONPROP if default is MISSING else default,
                helptext=option.help.replace("None: ", "Default: "),  # None can't be typed
            )
        )  # fmt: skip
    return StructConstructorSpec(instantiate=info.type, fields=tuple(specs))


def _make_tuple_metavar(hint: Any) -> str | None:
    """What stands for the value of an optional tuple in the help, such as "STR ..."; None for other types."""
    for member in get_args(_strip_annotations(hint)):
        if get_origin(member) is tuple:
            element = get_args(member)[0]
            return (
                f"{{{','.join(get_args(element))}}} ..."
                if get_args(element)
                else f"{element.__name__.upper()} ..."
            )
    return None


def _read_docs(owner: Callable[..., Any]) -> dict[str, str]:
    """Read what is said of each parameter or field: in Args or Attributes of the docstring, or below a field."""
    docs: dict[str, str] = {}
    for base in reversed(owner.__mro__) if isinstance(owner, type) else [owner]:
        docs |= _read_docstring_section(base.__doc__ or "")
        if is_dataclass(base):
            docs |= _read_field_docstrings(base)
    return docs


def _read_docstring_section(docstring: str) -> dict[str, str]:
    """Read the entries of a docstring's Args or Attributes, each joined to one line."""
    _, _, section = inspect.cleandoc(docstring).partition("Args:\n")
    if not section:
        _, _, section = inspect.cleandoc(docstring).partition("Attributes:\n")
    section = re.split(r"\n\S", section)[0]  # up to the next section
    entries = re.findall(r"^    (\w[\w, ]*): (.*(?:\n {8,}.*)*)", section, re.MULTILINE)
    return {name.strip(): " ".join(text.split()) for names, text in entries for name in names.split(",")}


def _read_field_docstrings(config: type) -> dict[str, str]:
    """Read the docstring below each field of a dataclass."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(config))).body
    assert isinstance(definition, ast.ClassDef)
    docs = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match below:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    docs[field.target.id] = " ".join(text.split())
    return docs


def _strip_annotations(hint: Any) -> Any:
    """The type inside Annotated, or the type itself."""
    return get_args(hint)[0] if hasattr(hint, "__metadata__") else hint
