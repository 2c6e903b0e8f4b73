"""The public API changes only on purpose: this file changes with it, and so does CHANGELOG.md."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import prolip
from prolip import cli, data, scenes

PROJECT = Path(__file__).parent.parent

NAMES = {
    "Gaussian": "(mean: 'Tensor', log_var: 'Tensor') -> None",
    "ProLIP": "(config: 'ModelConfig', tokenizer: 'Tokenizer | None' = None) -> 'None'",
    "containment": "(a: 'Gaussian', b: 'Gaussian', *, mass: 'float' = 0.95) -> 'Tensor'",
    "containment_matrix": "(a: 'Gaussian', b: 'Gaussian', *, mass: 'float' = 0.95) -> 'Tensor'",
    "create": "(size: 'str', tokenizer: 'Tokenizer', *, seed: 'int' = 0) -> 'ProLIP'",
    "csd": "(a: 'Gaussian', b: 'Gaussian') -> 'Tensor'",
    "csd_matrix": "(a: 'Gaussian', b: 'Gaussian') -> 'Tensor'",
    "export_onnx": "(model: 'ProLIP', folder: 'str | Path') -> 'dict[str, float]'",
    "inclusion": "(a: 'Gaussian', b: 'Gaussian', *, form: 'Form' = 'exact', eps: 'float' = 0.0) -> 'Tensor'",
    "inclusion_matrix": "(a: 'Gaussian', b: 'Gaussian', *, form: 'Form' = 'exact', eps: 'float' = 0.0) -> 'Tensor'",
    "kl_divergence": "(a: 'Gaussian', b: 'Gaussian') -> 'Tensor'",
    "kl_standard": "(z: 'Gaussian') -> 'Tensor'",
    "load": "(name_or_path: 'str | Path', *, revision: 'str | None' = None, "
    "device: 'str | torch.device | None' = None, dtype: 'torch.dtype | None' = None, "
    "tokenizer: 'str | Path | Tokenizer | None' = None, config: 'str | Path | None' = None, "
    "image_size: 'int | None' = None, "
    "context_length: 'int | None' = None) -> 'ProLIP'",
    "log_containment": "(a: 'Gaussian', b: 'Gaussian', *, mass: 'float' = 0.95) -> 'Tensor'",
    "log_containment_matrix": "(a: 'Gaussian', b: 'Gaussian', *, mass: 'float' = 0.95) -> 'Tensor'",
    "log_density": "(points: 'Tensor', z: 'Gaussian') -> 'Tensor'",
    "log_density_matrix": "(points: 'Tensor', z: 'Gaussian') -> 'Tensor'",
    "log_inclusion": "(a: 'Gaussian', b: 'Gaussian', *, form: 'Form' = 'exact', eps: 'float' = 0.0) -> 'Tensor'",
    "log_inclusion_matrix": "(a: 'Gaussian', b: 'Gaussian', *, form: 'Form' = 'exact', eps: 'float' = 0.0) -> 'Tensor'",
}

METHODS = {
    "from_pretrained": "(name_or_path: 'str | Path', *, revision: 'str | None' = None, "
    "device: 'str | torch.device | None' = None, dtype: 'torch.dtype | None' = None) -> 'ProLIP'",
    "save_pretrained": "(self, folder: 'str | Path') -> 'Path'",
    "push_to_hub": "(self, repo_id: 'str', *, private: 'bool | None' = None, revision: 'str | None' = None, "
    "commit_message: 'str' = 'Upload a prolip model', license: 'str | None' = None, "
    "token: 'str | None' = None) -> 'str'",
}
"""Methods of ProLIP that users know from transformers and huggingface_hub."""


def test_names_and_signatures():
    found = {name: str(inspect.signature(getattr(prolip, name))) for name in prolip.__all__}
    assert found == NAMES
    methods = {name: str(inspect.signature(getattr(prolip.ProLIP, name))) for name in METHODS}
    assert methods == METHODS


def test_commands():
    commands = {f"{name} {sub}".strip() for name in cli.COMMANDS for sub in cli.GROUPS.get(name, {"": None})}
    assert commands == {
        "demo", "convert", "export", "train", "data scenes", "data check", "data ambiguity", "report toy",
        "report scenes", "doctor",
        "data hierarimgs", "traverse", "evaluate zeroshot", "evaluate retrieval", "evaluate suite",
        "evaluate hierarcaps", "evaluate hierarimgs", "evaluate robustness", "evaluate prompts",
        "evaluate uncertainty", "evaluate background", "report page", "embed", "index", "search", "filter",
    }  # fmt: skip


def test_names_of_data_and_scenes():
    """docs/data.md explains each name."""
    assert set(data.__all__) == {
        "AnnotatedSource", "BadSampleError", "Batch", "CaptionAnnotation", "CombinedLoader", "ConcatSource",
        "ErrorCounts", "LabeledData", "Loader", "Preprocessor", "Sample", "SampleError", "Source", "StreamLoader",
        "Subset", "TarStream", "TooManyBadSamplesError", "open_data", "open_labeled",
    }  # fmt: skip
    assert set(scenes.__all__) == {
        "Caption", "CaptionMeaning", "HARD", "ObjectPattern", "RandomDraws", "SIMPLE", "Scene", "SceneObject",
        "Scenes", "SpatialRelation", "World", "entails", "get_world", "is_true", "is_true_caption",
        "iter_true_meanings", "log_ambiguity", "make_caption", "make_caption_chain", "make_description",
        "make_tokenizer", "parse_caption", "probability", "render", "render_masks",
    }  # fmt: skip
    text = (PROJECT / "docs" / "data.md").read_text()
    for name in (*data.__all__, *scenes.__all__):
        assert re.search(rf"\b{name}\b", text), f"docs/data.md doesn't mention {name}"


def test_every_public_name_is_documented():
    for name in prolip.__all__:
        assert inspect.getdoc(getattr(prolip, name)), name


def test_every_public_name_is_explained_somewhere():
    pages = " ".join(page.read_text() for page in (PROJECT / "docs").glob("*.md"))
    for name in prolip.__all__:
        assert f"`{name.removesuffix('_matrix')}`" in pages, name


def test_type_checkers_see_the_same_names():
    tree = ast.parse((PROJECT / "src" / "prolip" / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.asname: node.module for node in block.body for alias in node.names}
    assert seen == prolip._HOME


def test_names_are_listed_and_wrong_ones_are_refused():
    assert set(prolip.__all__) <= set(dir(prolip))
    with pytest.raises(AttributeError, match="no attribute 'cds'"):
        _ = prolip.cds


def test_importing_the_package_does_not_import_torch():
    code = "import sys, prolip; assert 'torch' not in sys.modules; prolip.csd; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
