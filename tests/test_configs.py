from dataclasses import asdict, dataclass
from typing import Literal

import pytest

from prolip.configs import build_dataclass, require_literals


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
