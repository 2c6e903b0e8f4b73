"""Options of commands, made from functions and configs."""

import re
from dataclasses import MISSING, dataclass
from typing import Annotated, Literal

import pytest
from tyro.conf import Positional, arg

from prolip import cli
from prolip.cli.parser import _strip_annotations, iter_flat_options, run_command
from prolip.configs import Advanced, union_members

COMMANDS = {
    **{name: command for name, command in cli.COMMANDS.items() if name not in (*cli.GROUPS, "train")},
    **{f"{group} {name}": command for group, names in cli.GROUPS.items() for name, command in names.items()},
}


@dataclass(frozen=True, kw_only=True)
class Base:
    """Base.

    Attributes:
        names: Some names. None: all.
    """

    names: tuple[str, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Config(Base):
    """A config."""

    size: int = 3
    """Size
    of it."""
    kind: Literal["a", "b"] | None = None
    """Kind. None: any."""
    draw: bool = True
    """Draw it."""
    depth: Advanced[int] = 1
    """Depth."""
    progress: Advanced[bool | None] = None
    """Show progress."""

    def __post_init__(self):
        if self.size < 1:
            raise ValueError("size must be positive")


received = []


def command(
    data: Positional[str], config: Config, as_json: Annotated[bool, arg(name="json", aliases=["-j"])] = False
) -> None:
    """Do it.

    Args:
        data: The
            data.
        as_json: Print JSON.
    """
    received.append((data, config, as_json))


def get_help(words, capsys):
    with pytest.raises(SystemExit):
        run_command(command, "prolip it", words)
    return " ".join(capsys.readouterr().out.replace("│", "").split())


def test_run_command_builds_the_config():
    words = ["x", "--size=5", "--kind", "b", "--no-draw", "--depth", "2", "--names", "u", "v", "-j"]
    run_command(command, "prolip it", words)
    assert received.pop() == ("x", Config(size=5, kind="b", draw=False, depth=2, names=("u", "v")), True)
    run_command(command, "prolip it", ["x"])
    assert received.pop() == ("x", Config(), False)
    run_command(command, "prolip it", ["x", "--no-progress"])
    assert received.pop() == ("x", Config(progress=False), False)


def test_run_command_raises_the_error_of_the_config():
    with pytest.raises(ValueError, match="size must be positive"):
        run_command(command, "prolip it", ["x", "--size", "0"])


def test_help_shows_docs_and_defaults_without_noise(capsys):
    text = get_help(["--help"], capsys)
    for words in (
        "The data.",
        "Size of it. (default: 3)",
        "{a,b} Kind. Default: any.",
        "--draw, --no-draw",
        "-j",
    ):
        assert words in text
    assert "None" not in text
    assert "False" not in text
    assert "prolip it --help-all" in text


def test_advanced_options_are_shown_by_help_all_only(capsys):
    short, long = get_help(["-h"], capsys), get_help(["x", "--help-all"], capsys)
    for flag in ("--depth", "--names STR ..."):  # names is inherited
        assert flag not in short
        assert flag in long


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented(name):
    for option in iter_flat_options(COMMANDS[name]):
        assert option.help, option.name


def test_flags_of_all_commands_have_one_type():
    """The same flag means the same everywhere: it takes the same kind of value."""
    found = {}
    shared = ("model", "device", "seed", "batch_size", "workers", "limit", "modality", "json")
    for name, command in COMMANDS.items():
        for option in iter_flat_options(command):
            flag = option.flags[0].removeprefix("--").replace("-", "_")
            if flag in shared:
                words = set(re.findall(r"\w+", str(_strip_annotations(option.hint)))) - {
                    "None",
                    "Optional",
                    "typing",
                    "class",
                }
                found.setdefault(flag, {}).setdefault(frozenset(words), []).append(name)
    assert {flag: kinds for flag, kinds in found.items() if len(kinds) > 1} == {}


@pytest.mark.parametrize(
    ("words", "suggested"),
    [
        ("embed --output x", "--out"),
        ("search --topk 3", "-k or --k"),
        ("search --top-k=3", "-k or --k"),
        ("filter --output-dir x", "--out"),
        ("embed --outfile x", "--out"),
        ("search --max 0.9", "--max-uncertainty"),
    ],
)
def test_a_flag_of_another_program_gets_ours(words, suggested):
    name, *rest = words.split()
    with pytest.raises(ValueError, match=rf"did you mean {suggested}\?"):
        run_command(COMMANDS[name], f"prolip {name}", rest)


@pytest.mark.parametrize("word", ["--zzz", "--", "--no"])
def test_a_flag_like_no_other_gets_the_help(word):
    with pytest.raises(ValueError, match="prolip search --help-all lists the options"):
        run_command(COMMANDS["search"], "prolip search", ["db", word])


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("search", "[OPTIONS] DB [TEXT]"),
        ("index", "[OPTIONS] EMBEDDINGS ..."),
        ("traverse", "[OPTIONS] IMAGE ..."),
    ],
)
def test_help_tells_required_from_optional_positionals(name, usage, capsys):
    with pytest.raises(SystemExit):
        run_command(COMMANDS[name], f"prolip {name}", ["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(usage)
    positionals = "\n".join(lines).partition("positional arguments")[2].partition("-h, --help")[0]
    assert positionals.count("(required)") == 1
    assert "default" not in positionals


@pytest.mark.parametrize("name", COMMANDS)
def test_a_misspelt_flag_of_any_command_gets_its_name(name):
    for option in iter_flat_options(COMMANDS[name]):
        flag = option.flags[0]
        if len(flag) > 6:
            misspelt = flag[:-2] + flag[-1] + flag[-2] + "x"
            with pytest.raises(ValueError, match=f"did you mean {flag}"):
                run_command(COMMANDS[name], f"prolip {name}", [misspelt, "1"])


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"demo", "app"}))  # these print as they go
def test_commands_take_json(name):
    options = {option.flags[0]: option for option in iter_flat_options(COMMANDS[name])}
    assert options["--json"].help.startswith("Print JSON instead of")


def test_a_flag_is_a_number_in_all_commands_or_in_none():
    """`--pool` was a number of captions in one command, and a folder in another."""
    kinds = {}
    for name, command in COMMANDS.items():
        for option in iter_flat_options(command):
            members = set(union_members(_strip_annotations(option.hint)))
            kinds.setdefault(option.flags[0], {})[name] = not members.isdisjoint({int, float})
    assert {flag: by for flag, by in kinds.items() if len(set(by.values())) > 1} == {}


def test_required_data_has_no_flag():
    """`prolip evaluate suite --data FOLDER` was the only command that wanted one."""
    for name, command in COMMANDS.items():
        for option in iter_flat_options(command):
            if option.name in ("data", "images", "captions", "table", "source") and option.default is MISSING:
                is_flag = "Positional" not in repr(option.hint)
                assert not is_flag or (name, option.name) == ("traverse", "captions"), (name, option.name)
