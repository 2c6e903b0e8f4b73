"""Fixtures shared by all tests: random Gaussians, a tokenizer, a small model."""

import gc
import hashlib
import os
import socket
from dataclasses import replace
from pathlib import Path

# Before torch is imported; subprocesses inherit it. Several threads per process would compete for the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import pytest
import torch

from prolip.gaussian import Gaussian
from prolip.model.create import create
from prolip.model.prolip import ProLIP
from prolip.preprocessing.tokenizer_builders import train_word_level
from prolip.weights import onnx_module
from prolip.weights.encoders import packaged

os.environ.setdefault("HF_HUB_OFFLINE", "1")

hypothesis.settings.register_profile("prolip", deadline=None, derandomize=True, max_examples=30)
hypothesis.settings.load_profile("prolip")


def why_hub_is_unavailable():
    """Why the hub can't be used; None if it can."""
    if os.environ["HF_HUB_OFFLINE"] != "0":
        return "the hub is only used with HF_HUB_OFFLINE=0"
    try:
        socket.create_connection(("huggingface.co", 443), timeout=3).close()
    except OSError as error:
        return f"the hub can't be reached: {error}"
    return None


def pytest_collection_modifyitems(items):
    hub_tests = [item for item in items if item.get_closest_marker("hub")]
    reason = why_hub_is_unavailable() if hub_tests else None
    for item in hub_tests if reason else ():
        item.add_marker(pytest.mark.skip(reason=reason))


def pytest_configure(config):
    if "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(1)
    gc.disable()  # modules and tests live to the end: while they are collected, nothing becomes garbage


def pytest_collection_finish(session):
    """Let the garbage collector skip what was collected, millions of objects; it runs on what tests make."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _temporary_cache(tmp_path_factory, pytestconfig):
    """Caches and what sessions remember go to temporary folders, not to the user's.

    Graphs of encoders, each of which takes ten seconds to export, stay in pytest's own cache, for all workers and
    sessions with this torch and this code.
    """
    caches = tmp_path_factory.mktemp("cache")
    versions = hashlib.sha256(torch.__version__.encode())
    for module in (onnx_module, packaged):
        versions.update(Path(module.__file__).read_bytes())
    graphs = pytestconfig.cache.mkdir(f"encoders-{versions.hexdigest()[:16]}")
    (caches / "prolip").mkdir()
    (caches / "prolip" / "encoders").symlink_to(graphs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("XDG_CACHE_HOME", str(caches))
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_disks():
    """Files of tests needn't survive a power cut; tests of fsync set it again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            os, "fsync", lambda descriptor: os.fstat(descriptor) and None
        )  # an error if it isn't open
        yield


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def draw(generator):
    """draw(4, 8, low=-20, high=2): unit means, log-variances spread evenly over [low, high]."""

    def make(*shape, low=-6.0, high=1.0, dtype=torch.float64):
        mean = torch.nn.functional.normalize(
            torch.randn(shape, generator=generator, dtype=torch.float64), dim=-1
        )
        log_var = low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)
        return Gaussian(mean.to(dtype), log_var.to(dtype))

    return make


CAPTIONS = [
    "a red circle above a blue star",
    "a small green square",
    "a thing",
    "two yellow stars and a circle",
]


@pytest.fixture(scope="session")
def tokenizer():
    """Word level: [PAD] 0, [MASK] 1, [UNK] 2, then the words of a few captions."""
    return train_word_level(CAPTIONS, context_length=16)


@pytest.fixture
def nano(tokenizer):
    """A new model of the smallest size: 32 pixels, 16 tokens, 32 dimensions."""
    return create("nano", tokenizer, seed=0).eval()


@pytest.fixture
def likelihood_nano(nano):
    """A model of the smallest size with one log-variance per sample, for the likelihood; widths differ."""
    config = nano.config.with_uncertainty("token", isotropic=True)
    init = config.init.fit_to(config.embed_dim, isotropic=True, contrastive_loss="likelihood")
    config = replace(config, contrastive_loss="likelihood", init=init)
    generator = torch.Generator().manual_seed(0)
    model = ProLIP(config, nano.tokenizer).init_weights(generator).eval()
    with torch.no_grad():
        for head in (model.image.log_var, model.text.log_var):
            head.weight.normal_(0.0, 0.1, generator=generator)
    return model


@pytest.fixture(scope="session")
def nano_path(tokenizer, tmp_path_factory):
    """The folder of the smallest model: what `--model` takes."""
    return str(create("nano", tokenizer, seed=0).save_pretrained(tmp_path_factory.mktemp("nano") / "model"))
