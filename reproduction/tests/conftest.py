"""A fresh nano model that knows the words of scenes, and a small ground to judge it on."""

import pytest

from prolip.model.create import create
from prolip.scenes import tokenizer
from reproduction.evaluation_sets import Ground, Samples

FEW = Samples(
    scenes=60, captions=2, polluted=40, attacked=4, attack=(1, 2), shots=2, repeats=1, size=32
)  # fmt: skip


@pytest.fixture(scope="session")
def scenes_model():
    return create("nano", tokenizer(16), seed=0).eval()


@pytest.fixture(scope="session")
def ground(tmp_path_factory):
    return Ground(tmp_path_factory.mktemp("ground") / "scenes", FEW).prepare(show=False)
