"""What mkdocs can't do alone: pages made of the code and of files beside docs/, and links between them.

`reference/cli.md` is made of the commands and their configs, `reference/api/` of the public names; CHANGELOG.md,
CONTRIBUTING.md and SECURITY.md become pages. Nothing is fetched.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT / "src"))

BESIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Pages that are not in docs/."""
ROOMS = (
    "", "measures", "losses", "model", "preprocessing", "data", "scenes", "weights", "training", "adaptation",
    "embeddings", "retrieval", "filtering", "zeroshot", "evaluation", "integrations", "reports",
)  # fmt: skip
"""Packages whose public names are documented; "": `prolip` itself."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to those of docs/."""
    pages = {name.lower(): (PROJECT / name).read_text(encoding="utf-8") for name in BESIDE}
    pages |= {"reference/cli.md": write_cli_page(), **write_api_pages()}
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to files beside docs/ to the pages that are made of them."""
    for name in BESIDE:
        markdown = re.sub(rf"\]\((?:\.\./)*{re.escape(name)}(#[^)]*)?\)", rf"]({name.lower()}\1)", markdown)
    if page.file.src_uri in {name.lower() for name in BESIDE}:
        markdown = markdown.replace("](docs/", "](")
    return markdown


def write_cli_page() -> str:
    """The page of all commands, each with its description, an example and its options."""
    from prolip import cli

    lines = [
        "# Command line", "",
        "`prolip COMMAND --help` prints what is below in a terminal. *Rarely used* options are listed by `--help-all`.",
        "Every command ends with exit code 0, or with one sentence and another code (2 for bad input).", "",
    ]  # fmt: skip
    for name, command in cli.COMMANDS.items():
        if name == "train":
            lines += [*_describe_train()]
        elif name in cli.GROUPS:
            for sub, subcommand in cli.GROUPS[name].items():
                lines += _describe_command(f"prolip {name} {sub}", subcommand)
        else:
            lines += _describe_command(f"prolip {name}", command)
    return "\n".join(lines)


def _describe_command(name: str, command: Callable[..., Any]) -> Iterator[str]:
    """A heading, the docstring up to its arguments, and a table of options."""
    from prolip.cli.parser import iter_flat_options

    text = inspect.cleandoc(command.__doc__ or "").split("\nArgs:")[0].strip()
    yield from (f"## {name}", "")
    for line in text.splitlines():
        example = line.startswith("Example: ")
        yield f"    {line.removeprefix('Example: ')}" if example else line
    yield from (
        "",
        '<div class="options" markdown="1">',
        "",
        "| option | default | meaning |",
        "|---|---|---|",
    )
    options = sorted(iter_flat_options(command), key=lambda option: option.is_advanced)
    for option in options:
        flags = ", ".join(f"`{flag}`" for flag in option.flags)
        if _is_positional(option.hint):
            flags = f"`{_find_metavar(option.hint) or option.name.upper()}`"
        note = "*Rarely used.* " if option.is_advanced else ""
        meaning = f"{note}{option.help.replace('None: ', 'Default: ')}".replace("|", "\\|")
        yield f"| {flags} | {_describe_default(option.default)} | {meaning} |"
    yield from ("", "</div>", "")


def _is_positional(hint: Any) -> bool:
    return any("Positional" in repr(part) for part in (hint, *getattr(hint, "__metadata__", ())))


def _find_metavar(hint: Any) -> str:
    """The word that stands for a value in the usage; "" if none was given."""
    parts = (
        *getattr(hint, "__metadata__", ()),
        *(m for a in get_args(hint) for m in getattr(a, "__metadata__", ())),
    )
    return next((part.metavar for part in parts if getattr(part, "metavar", None)), "")


def _describe_default(default: Any) -> str:
    """A default as a cell of a table: empty if there is none, "required" without one."""
    if default is MISSING:
        return "required"
    if default is None or default is False or default in ((), ""):
        return ""
    value = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
    return f"`{value}`".replace("|", "\\|")


def _describe_train() -> Iterator[str]:
    """`prolip train`, whose flags depend on the recipe: what its help prints."""
    from prolip.cli import main

    yield from ("## prolip train", "", "```text", _capture(main, ["train", "--help"]), "```", "")
    yield from ("### Every flag, by the example of a recipe", "", "```text")
    yield from (_capture(main, ["train", "miniature", "--help-all"]), "```", "")


def _capture(main: Callable[[list[str]], None], args: list[str]) -> str:
    """What a command prints, without colors."""
    with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(SystemExit):
        main(args)
    return re.sub(r"\x1b\[[0-9;]*m", "", text.getvalue()).rstrip()


def write_api_pages() -> dict[str, str]:
    """A page per package with its public names, from their docstrings; a name of two packages stands at the first."""
    homes: dict[str, str] = {}  # where a name is defined -> the page that describes it
    return {f"reference/api/{room or 'prolip'}.md": _write_api_page(room, homes) for room in ROOMS}


def _write_api_page(room: str, homes: dict[str, str]) -> str:
    """The page of one package; adds what it describes to `homes`."""
    package = f"prolip.{room}".rstrip(".")
    exports = _read_exports(package)
    first_line = (import_module(package).__doc__ or "").strip().splitlines()[0]
    lines = [f"# {package}", "", first_line, ""]
    links = [f"[`{name}`]({homes[home]}#{home})" for name, home in exports.items() if home in homes]
    if links:
        lines += ["Described elsewhere: " + ", ".join(links) + ".", ""]
    for name, home in exports.items():
        if home not in homes:
            homes[home] = f"{room or 'prolip'}.md"
            lines += [f"::: {home}", "    options:", "      heading_level: 2"]
            lines += [f"      heading: {package}.{name}", f"      toc_label: {name}", ""]
    return "\n".join(lines)


def _read_exports(package: str) -> dict[str, str]:
    """Public name -> where it is defined, from the imports for type checkers."""
    path = Path(str(import_module(package).__file__))
    block = next(node for node in ast.parse(path.read_text()).body if isinstance(node, ast.If))
    return {
        alias.name: f"{node.module}.{alias.name}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
