import inspect
from dataclasses import asdict, dataclass
from typing import Literal

import pytest

from prolip.configs import build_dataclass, require_literals, suggest, takes_config


@dataclass(frozen=True)
class Inner:
    size: int = 1


@dataclass(frozen=True)
class Outer:
    inner: Inner
    several: tuple[Inner, ...] = ()
    pair: tuple[float, float] = (0.0, 1.0)
    maybe: tuple[str, ...] | None = None
    kind: Literal["a", "b"] = "a"
    on: bool = False

    def __post_init__(self):
        require_literals(self)


@pytest.mark.parametrize(
    "value",
    [
        Outer(Inner(3)),
        Outer(Inner(), several=(Inner(1), Inner(2)), pair=(2.0, 3.0), maybe=("x", "y"), kind="b", on=True),
    ],
)
def test_build_dataclass_inverts_asdict(value):
    plain = asdict(value)
    listed = {name: list(v) if isinstance(v, tuple) else v for name, v in plain.items()}
    assert build_dataclass(Outer, plain, "it") == build_dataclass(Outer, listed, "it") == value


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"inner": {}, "more": 1}, r"it has unknown keys \['more'\]; the known ones are \['inner'"),
        ({"inner": {"sise": 1}}, "it.inner has unknown keys"),
        ({"inner": {}, "several": [{}, {"sise": 1}]}, r"it.several\[1\] has unknown keys"),
        ({"inner": 3}, "it.inner must be an object with named values, not int"),
        ({}, "it: .*missing"),
        ({"inner": {}, "kind": "c"}, "it: kind 'c' is not one of"),
        ({"inner": {}, "on": "yes"}, "on must be true or false"),
    ],
)
def test_build_dataclass_errors_name_the_field(values, message):
    with pytest.raises(ValueError, match=message):
        build_dataclass(Outer, values, "it")


@dataclass(frozen=True, kw_only=True)
class Sizes:
    batch_size: int = 4
    keep: float

    def __post_init__(self):
        if self.batch_size < 1:
            raise ValueError("batch_size must be positive")


@takes_config(Sizes)
def resize(data, out, config):
    """Resize it."""
    return data, out, config


def test_takes_config_accepts_a_config_or_its_fields():
    config = Sizes(keep=0.5, batch_size=2)
    expected = ("a", "b", config)
    assert resize("a", "b", config) == resize("a", "b", config=config) == expected
    assert (
        resize("a", "b", keep=0.5, batch_size=2) == resize("a", out="b", keep=0.5, batch_size=2) == expected
    )


def test_takes_config_shows_the_fields():
    assert list(inspect.signature(resize).parameters) == ["data", "out", "batch_size", "keep"]
    assert resize.__doc__ == "Resize it."


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        (
            {"keep": 1, "batchsize": 3},
            TypeError,
            r"resize\(\) has no option 'batchsize': did you mean batch_size\?",
        ),
        ({"keep": 1, "zzz": 3}, TypeError, "'zzz': the options are batch_size, keep"),
        ({"keep": 1, "config": Sizes(keep=1)}, TypeError, "a config or its fields"),
        ({"config": Inner()}, TypeError, "must be Sizes, not Inner"),
        ({}, TypeError, "keep"),
        ({"keep": 1, "batch_size": 0}, ValueError, "positive"),
    ],
)
def test_takes_config_refuses_other_fields(fields, error, message):
    with pytest.raises(error, match=message):
        resize("a", "b", **fields)


def test_takes_config_refuses_two_configs():
    with pytest.raises(TypeError, match="two configs"):
        resize("a", "b", Sizes(keep=1), config=Sizes(keep=0.5))


class Resizer:
    @takes_config(Sizes).constructor
    def __init__(self, data, config):
        self.data, self.config = data, config


def test_constructors_take_a_config_or_its_fields():
    config = Sizes(keep=0.5, batch_size=2)
    for made in (
        Resizer("a", config),
        Resizer(data="a", config=config),
        Resizer("a", keep=0.5, batch_size=2),
    ):
        assert (made.data, made.config) == ("a", config)
    assert list(inspect.signature(Resizer).parameters) == ["data", "batch_size", "keep"]
    with pytest.raises(TypeError, match=r"^Resizer\(\) has no option 'batchsize': did you mean batch_size\?"):
        Resizer("a", batchsize=3)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("--batchsize", "did you mean --batch-size?"),
        ("--bad-fraction", "did you mean --max-bad-fraction?"),
        ("--zzz", ""),
    ],
)
def test_suggest(name, hint):
    assert suggest(name, ["--batch-size", "--max-bad-fraction", "--cache"]) == hint
