"""A fresh nano model that knows the words of scenes, and a small ground to judge it on."""

import pytest

from prolip.model.create import create
from prolip.scenes import make_tokenizer
from reproduction.evaluation_data import EvaluationData, EvaluationSizes

FEW = EvaluationSizes(
    scenes=60, captions=2, noisy=40, num_pgd=4, pgd_steps=(1, 2), shots=2, repeats=1, size=32
)  # fmt: skip


@pytest.fixture(scope="session")
def scenes_model():
    return create("nano", make_tokenizer(16), seed=0).eval()


@pytest.fixture(scope="session")
def evaluation_data(tmp_path_factory):
    return EvaluationData(tmp_path_factory.mktemp("ground") / "scenes", FEW).prepare(show=False)
