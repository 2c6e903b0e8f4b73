"""The public API changes only on purpose: this file changes with it, and so does CHANGELOG.md."""

import ast
import inspect
import re
import subprocess
import sys
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

import prolip
from prolip import cli, data, scenes
from prolip.adaptation import AdaptConfig
from prolip.embeddings import EmbedConfig
from prolip.filtering import FilterConfig
from prolip.retrieval import IndexConfig, SearchConfig

PROJECT = Path(__file__).parent.parent

NAMES = {
    "Gaussian": "(mean: 'Tensor', log_var: 'Tensor') -> None",
    "ProLIP": "(config: 'ModelConfig', tokenizer: 'Tokenizer | None' = None) -> 'None'",
    "containment": "(a: 'Gaussian', b: 'Gaussian', *, mass: 'float' = 0.95) -> 'Tensor'",
    "containment_matrix": "(a: 'Gaussian', b: 'Gaussian', *, mass: 'float' = 0.95) -> 'Tensor'",
    "create": "(size: 'str', tokenizer: 'Tokenizer', *, seed: 'int' = 0) -> 'ProLIP'",
    "csd": "(a: 'Gaussian', b: 'Gaussian') -> 'Tensor'",
    "csd_matrix": "(a: 'Gaussian', b: 'Gaussian') -> 'Tensor'",
    "export_onnx": "(model: 'ProLIP', folder: 'str | Path', *, int8: 'bool' = False) -> 'dict[str, float]'",
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
    "perplexity": "(items: 'Gaussian', pool: 'Pool', logits: 'float | LogitParameters | None' = None, *, "
    "k: 'float' = 1.0, exclude: 'Tensor | None' = None, modality: 'Modality | None' = None) -> 'Tensor'",
    "train": "(config: 'TrainConfig | str | PathLike[str]', overrides: 'Mapping[str, object] | None' = None, *, "
    "resume: 'bool' = False, trust_pipe: 'bool' = False, **values: 'object') -> 'Path'",
}

MEASURES = ("csd", "inclusion", "containment", "kl", "log")
"""First words of the names of measures."""

METHODS = {
    "from_pretrained": "(name_or_path: 'str | Path', *, revision: 'str | None' = None, "
    "device: 'str | torch.device | None' = None, dtype: 'torch.dtype | None' = None) -> 'ProLIP'",
    "save_pretrained": "(self, folder: 'str | Path') -> 'Path'",
    "push_to_hub": "(self, repo_id: 'str', *, private: 'bool | None' = None, revision: 'str | None' = None, "
    "commit_message: 'str' = 'Upload a prolip model', license: 'str | None' = None, "
    "token: 'str | None' = None) -> 'str'",
}
"""Methods of ProLIP that users know from transformers and huggingface_hub."""


CONFIGURED = {
    "embed": (["model", "data", "out"], EmbedConfig),
    "filter_pairs": (["data", "out"], FilterConfig),
    "adapt": (["data", "out"], AdaptConfig),
    "index": (["embeddings", "out"], IndexConfig),
    "search": (["database", "query"], SearchConfig),
}
"""Functions that take the fields of a config as keywords: their other parameters, and the config."""


def test_names_and_signatures():
    assert set(prolip.__all__) == {*NAMES, *CONFIGURED}
    assert {name: str(inspect.signature(getattr(prolip, name))) for name in NAMES} == NAMES
    methods = {name: str(inspect.signature(getattr(prolip.ProLIP, name))) for name in METHODS}
    assert methods == METHODS


@pytest.mark.parametrize("name", CONFIGURED)
def test_functions_with_a_config_take_its_fields(name):
    positional, config = CONFIGURED[name]
    assert list(inspect.signature(getattr(prolip, name)).parameters) == [
        *positional, *(field.name for field in fields(config)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("constructor", "positional", "config"),
    [
        (data.Loader, ["sources", "preprocessor"], data.LoaderConfig),
        (data.StreamLoader, ["stream", "preprocessor"], data.StreamLoaderConfig),
        (scenes.Scenes, ["world"], scenes.ScenesConfig),
    ],
)
def test_constructors_with_a_config_take_its_fields(constructor, positional, config):
    assert list(inspect.signature(constructor).parameters) == [
        *positional, *(field.name for field in fields(config)),
    ]  # fmt: skip


def test_commands():
    commands = {f"{name} {sub}".strip() for name in cli.COMMANDS for sub in cli.GROUPS.get(name, {"": None})}
    assert commands == {
        "demo", "convert", "export", "train", "data scenes", "data check", "data ambiguity", "report toy",
        "report scenes", "doctor", "cache",
        "data hierarimgs", "data tokenizer", "traverse", "evaluate zeroshot", "evaluate retrieval", "evaluate suite",
        "evaluate hierarcaps", "evaluate hierarimgs", "evaluate robustness", "evaluate prompts",
        "evaluate uncertainty", "evaluate image-ambiguity", "evaluate background", "report page",
        "evaluate judgements",
        "embed", "index", "search", "filter", "calibrate", "adapt", "app",
    }  # fmt: skip


def test_names_of_data_and_scenes():
    """docs/data.md explains each name."""
    assert set(data.__all__) == {
        "AnnotatedImages", "AnnotatedSource", "BadSampleError", "Batch", "CaptionAnnotation",
        "CombinedLoader", "ConcatSource", "ErrorCounts", "ImageAnnotation", "LabeledData", "Loader",
        "LoaderConfig", "Preprocessor", "Sample", "SampleError", "Source", "StreamLoader",
        "StreamLoaderConfig", "Subset", "TarStream", "TooManyBadSamplesError", "build_hierarimgs",
        "occlude_center", "open_data", "open_labeled", "open_labeled_fields",
    }  # fmt: skip
    assert set(scenes.__all__) == {
        "Caption", "CaptionMeaning", "HARD", "ObjectPattern", "RandomDraws", "SIMPLE", "Scene", "SceneDatasetSpec",
        "SceneObject", "Scenes", "ScenesConfig", "SpatialRelation", "World", "entails", "generalize", "get_world",
        "is_true", "is_true_caption", "iter_true_meanings", "log_ambiguity", "make_caption", "make_caption_chain",
        "make_description", "make_tokenizer", "parse_caption", "probability", "render", "render_masks",
        "write_dataset", "VEILS", "ImageMeaning", "Veil", "VisibleObject", "draw_veil", "hide_facts", "observe",
        "VeiledScenes", "render_veiled", "image_log_ambiguity", "image_probability",
    }  # fmt: skip
    text = (PROJECT / "docs" / "data.md").read_text()
    for name in (*data.__all__, *scenes.__all__):
        assert re.search(rf"\b{name}\b", text), f"docs/data.md doesn't mention {name}"


ROOMS = {
    "adaptation": {"AdaptConfig", "Encoders", "adapt_encoders", "adapt_model"},
    "measures": {"find_nearest", "similarity", "log_perplexity"}
    | {name for name in NAMES if name.split("_")[0] in MEASURES},
    "losses": {
        "GlobalBatch", "LogitScaleBias", "LossTerms", "MaskedPairs", "Objective", "clip", "inclusion", "pml", "ppcl",
        "siglip", "vib", "LikelihoodTemperature", "likelihood", "nll", "one_sided",
    },
    "model": {
        "ImageConfig", "InitConfig", "ModelConfig", "ProLIP", "SIZES", "TextConfig", "TransformerConfig", "get_config",
        "resize_model",
    },
    "preprocessing": {
        "Augmentation", "ImagePreprocessing", "ImageViews", "Tokenizer", "TokenizerConfig", "add_mask_token", "augment",
        "build_clip_tokenizer", "clean_text", "compute_mean_color", "crop_image", "crop_text", "draw_image_view",
        "draw_patch_indices", "draw_text_view", "keep_patches", "make_standalone_tokenizer", "mask_tokens", "normalize",
        "occlude_box", "preprocess",
        "read_clip_merges", "read_image", "resize_and_crop", "train_bpe", "train_word_level", "collect_words",
    },
    "embeddings": {
        "BaseEmbedder", "EmbedConfig", "Embedder", "EmbedderConfig", "EmbeddingCache", "EmbeddingDataset",
        "EncodedImages", "ImageTransform", "LogitParameters", "PrecomputedEmbedder", "encode_images", "encode_texts",
        "open_embedder", "read_gaussians", "read_mean_traces",
    },
    "evaluation": {
        "BackgroundConfig", "BackgroundResult", "CalibrateConfig", "calibrate", "SuiteConfig", "SuiteResult",
        "HierarCapsConfig", "HierarCapsResult", "HierarImgsConfig", "HierarImgsResult", "ImageAmbiguityConfig",
        "ImageAmbiguityResult", "JudgementsConfig", "JudgementsResult", "Mean", "PerplexityResult", "PromptsConfig",
        "evaluate_image_ambiguity", "evaluate_judgements", "evaluate_perplexity",
        "PromptsResult", "Proportion", "Result", "RetrievalConfig", "RetrievalResult", "RobustnessConfig",
        "RobustnessResult", "UncertaintyConfig", "UncertaintyResult", "ZeroShotConfig", "ZeroShotResult",
        "analyze_uncertainty", "compare_strategies", "compute_zeroshot_metrics", "evaluate_background",
        "evaluate_hierarcaps", "evaluate_hierarimgs", "evaluate_prompts", "evaluate_retrieval",
        "evaluate_robustness", "evaluate_suite", "evaluate_uncertainty", "evaluate_zeroshot",
        "image_text_recall", "read_results",
    },
    "integrations": {
        "GaussianEncoder", "MtebEncoder", "ProLIPConfig", "ProLIPModel", "ProLIPOutput", "ProLIPProcessor",
        "make_item_vectors", "make_query_vectors", "register_with_transformers", "write_atlas", "write_vectors",
    },
    "filtering": {"FilterConfig", "FilterResult", "FilterSummary", "filter_pairs"},
    "retrieval": {
        "Calibration", "CaptionPath", "CaptionStep", "Database", "IndexConfig", "PerplexityEstimate", "SearchConfig",
        "SearchResponse", "TraverseConfig", "estimate_perplexity", "load_database_model", "open_caption_search",
        "read_calibration", "search",
        "search_gaussians", "search_with_confidence", "traverse", "traverse_images", "VerificationResult",
        "verify_database",
    },
    "app": {"AppConfig", "make_app", "serve"},
    "reports": {"ReportConfig", "ReportPage", "build_report"},
    "training": {
        "CheckpointConfig", "DataConfig", "HeldOutConfig", "LogConfig", "MaskingConfig", "ModelSpec", "NonFinitePolicy",
        "OptimizerConfig", "ParallelConfig", "Stage", "TrainConfig", "load_recipe", "read_metrics", "train",
    },
    "weights": {
        "LoadedModel", "export_onnx", "list_shipped_models", "make_model_card", "open_model",
        "write_sentence_transformers_folder",
    },
    "zeroshot": {
        "BPRWConfig", "FewShotSplit", "ZERO_SHOT_CONFIG", "class_std_filter", "embed_classes", "embed_prompts",
        "few_shot_config", "few_shot_weights", "fit_prompt_weights", "global_std_filter", "global_top_k_filter",
        "imagenet_class_names", "imagenet_templates", "make_prompt_texts", "read_class_names", "read_templates",
        "single_template_weights", "split_few_shot", "threshold_filter", "top_k_filter", "uniform_weights",
        "zero_shot_weights",
    },
}  # fmt: skip
"""Names that the rooms export: what docs and users import from them."""


@pytest.mark.parametrize("room", ROOMS)
def test_names_of_rooms(room):
    package = import_module(f"prolip.{room}")
    assert set(package.__all__) == ROOMS[room]
    assert set(package.__all__) <= set(dir(package))
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec(f"from prolip.{room} import nothing")


@pytest.mark.parametrize("room", ["", *ROOMS])
def test_type_checkers_see_the_same_names(room):
    """The imports under TYPE_CHECKING are those that happen at run time."""
    package = import_module(f"prolip.{room}".rstrip("."))
    block = next(
        node for node in ast.parse(Path(package.__file__).read_text()).body if isinstance(node, ast.If)
    )
    seen = {alias.asname: node.module for node in block.body for alias in node.names}
    assert sorted(seen) == package.__all__
    for name, module in seen.items():
        assert getattr(package, name) is getattr(import_module(module), name)


def test_no_exported_name_is_a_module():
    """`prolip.model.create` is a module: importing it would replace an exported function of that name."""
    for room in ("", *ROOMS, "data", "scenes"):
        package = import_module(f"prolip.{room}".rstrip("."))
        assert set(package.__all__).isdisjoint(module.name for module in iter_modules(package.__path__)), room


def test_every_public_name_is_documented():
    for room in ("", *ROOMS):
        package = import_module(f"prolip.{room}".rstrip("."))
        for name in package.__all__:
            assert inspect.getdoc(getattr(package, name)), f"{room}: {name}"


def test_every_public_name_is_explained_somewhere():
    pages = " ".join(page.read_text() for page in (PROJECT / "docs").glob("*.md"))
    for name in prolip.__all__:
        assert f"`{name.removesuffix('_matrix')}`" in pages, name


def test_names_are_listed_and_wrong_ones_are_refused():
    assert set(prolip.__all__) <= set(dir(prolip))
    with pytest.raises(AttributeError, match="no attribute 'cds'"):
        _ = prolip.cds


def test_importing_the_package_does_not_import_torch():
    code = "import sys, prolip; assert 'torch' not in sys.modules; prolip.csd; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_a_room_does_not_import_torch():
    """So that a module of configs and choices, which `--help` needs, can be in any of these rooms."""
    rooms = ", ".join(f"prolip.{room}" for room in ROOMS)
    code = f"import sys, {rooms}; assert not {{'torch', 'numpy'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
