"""Benchmark of the ONNX export: ids of the standalone tokenizer, accuracy and speed of int8 weights."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from benchmarks.timing import time_interleaved
from prolip.checks import require_positive_int
from prolip.console import make_table, print_tables
from prolip.data.evaluation_sets import prepare_evaluation_sets
from prolip.data.open import open_data
from prolip.data.source import Source
from prolip.extras import import_extra
from prolip.gaussian import Gaussian
from prolip.model import inference
from prolip.model.create import create
from prolip.model.prolip import ProLIP
from prolip.preprocessing.standalone_tokenizer import make_standalone_tokenizer
from prolip.preprocessing.tokenizer_builders import train_word_level
from prolip.weights.load import load
from prolip.weights.onnx import export_onnx

SCENES, SEED, BATCH = "scenes:simple,size=48", 77, 64

BREAKAGE: dict[str, Callable[[str], str]] = {
    "curly quotes": lambda text: f"‘{text}’, a man’s “{text}”",
    "entities by name": lambda text: (
        f"{text} &amp; &quot;{text}&quot; &lt;3 caf&eacute;&nbsp;&ndash; it&rsquo;s"
    ),
    "entities by number": lambda text: f"it&#39;s &#x27;{text}&#8217; caf&#233;",
    "entities escaped twice": lambda text: f"{text} &amp;amp; it&amp;#39;s &amp;quot;{text}&amp;quot;",
    "mojibake of punctuation": lambda text: f"{text} â€“ itâ€™s â€œ{text}â€\x9d",
    "mojibake of letters": lambda text: f"cafÃ© {text} niÃ±o Ã¼ber",
    "mojibake of mojibake": lambda text: f"{text} cafÃƒÂ© itÃ¢â‚¬â„¢s",
    "mojibake of other letters": lambda text: f"{text} Ð¿Ñ€Ð¸Ð²ÐµÑ‚",
    "rare entities": lambda text: f"{text} &alpha; &rarr; &hearts; &Scaron;",
    "entities without semicolon": lambda text: f"{text} &copy 2020 &eacute &amp {text}",
    "full width, ligatures": lambda text: f"ＡＢＣ {text} ﬁne ﬂower oﬃce",
    "half width": lambda text: f"{text} ｶﾞｷﾞ",
    "control characters": lambda text: f"\ufeff{text}\x00\x1b[31m{text}\x7f\x85",
    "accents composed and not": lambda text: f"cafe\u0301 {text} Å A\u030a ÑANDÚ STRASSE ΟΔΟΣ",
    "names of special tokens": lambda text: f"[CLS] {text} [MASK] [SEP] </s> <|endoftext|> [PAD]",
    "emoji and other scripts": lambda text: f"{text} 🐶👩‍👩‍👧 日本語 русский العربية",
    "whitespace": lambda text: f"\t{text}\u2003\u00a0{text}\r\n\u2028{text} \x0b",
    "punctuation": lambda text: f"__{text}__!? ({text}); #{text}@[{text}] $5.00",
    "longer than the context": lambda text: f"{text}, " * 60,
}
"""Captions that were damaged on purpose, by what was done to them."""


class OnnxModel:
    """Two exported graphs with what `embed_images` and `embed_texts` need of a model.

    Attributes:
        config: That of the exported model.
        dtype, device: Of inputs.
    """

    dtype, device = torch.float32, torch.device("cpu")

    def __init__(self, model: ProLIP, folder: Path, suffix: str) -> None:
        """Open the graphs image{suffix} and text{suffix}; where there is no int8 graph, that of float32."""
        self.config, self._model = model.config, model
        paths = [folder / f"{tower}{suffix}" for tower in ("image", "text")]
        whole = [folder / f"{tower}.onnx" for tower in ("image", "text")]
        self._sessions = [open_session(p if p.exists() else w) for p, w in zip(paths, whole, strict=True)]

    def tokenize(self, texts: str | Sequence[str]) -> Tensor:
        """Ids (B, T)."""
        return self._model.tokenize(texts)

    def encode_image(self, pixels: Tensor) -> Gaussian:
        """Gaussian (B, D) of pixels (B, 3, S, S)."""
        return _run(self._sessions[0], pixels)

    def encode_text(self, ids: Tensor) -> Gaussian:
        """Gaussian (B, D) of ids (B, T)."""
        return _run(self._sessions[1], ids)


def open_session(path: Path) -> Any:
    """Open a graph for the CPU, with one thread."""
    runtime = import_extra("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _run(session: Any, inputs: Tensor) -> Gaussian:
    """The Gaussian that a graph returns."""
    outputs = session.run(None, {session.get_inputs()[0].name: inputs.numpy()})
    return Gaussian(*(torch.from_numpy(output) for output in outputs))


def compare_ids(model: str, captions: Sequence[str] = (), limit: int = 5000) -> dict[str, Any]:
    """Compare the ids of the exported tokenizer.json with those of the model's tokenizer.

    Args:
        model: What `prolip.load` takes.
        captions: Data with captions, besides scenes.
        limit: Captions of each; a fifth of it of captions that are damaged on purpose, of each kind.

    Returns:
        model; for each set of captions: count, different, an example of a different one; microseconds for a caption of
        scenes, medians of interleaved runs in one thread, of either tokenizer.
    """
    require_positive_int(limit, "--limit")
    tokenizer = load(model, device="cpu").tokenizer
    if tokenizer is None:
        raise ValueError(f"{model} has no tokenizer, whose ids could be compared")
    backend = make_standalone_tokenizer(tokenizer)
    sets = {"scenes": list(islice(_iter_captions(open_data(SCENES)), limit))}
    for name in captions:
        source = open_data(name)
        sets[source.name] = list(islice(_iter_captions(source), limit))
    pool = [text for texts in sets.values() for text in texts]
    generator = random.Random(SEED)
    per_kind = max(1, limit // 5)
    for kind, damage in BREAKAGE.items():
        sets[kind] = [damage(generator.choice(pool)) for _ in range(per_kind)]
    rows = {}
    for name, texts in sets.items():
        different = [text for text in texts if _differs(text, tokenizer, backend)]
        rows[name] = {"count": len(texts), "different": len(different), "example": next(iter(different), "")}
    scenes = sets["scenes"]
    works: dict[str, Callable[[], Any]] = {
        "model": lambda: [tokenizer.encode(text) for text in scenes],
        "tokenizer.json": lambda: [backend.encode(text) for text in scenes],
    }
    seconds = time_interleaved(works, 3)
    times = {kind: 1e6 * statistics.median(runs) / len(scenes) for kind, runs in seconds.items()}
    return {"model": model, "sets": rows, "microseconds": times}


def _differs(text: str, tokenizer: Any, backend: Any) -> bool:
    """Whether the two tokenizers give different ids of a text."""
    return bool(backend.encode(text).ids != tokenizer.encode(text))


def _iter_captions(source: Source) -> Iterator[str]:
    """Yield all captions of a source."""
    for index in range(len(source)):
        yield from source.read(index).captions


def measure_accuracy(model: str, data: str | None = None, limit: int = 500) -> dict[str, Any]:
    """Compare int8 graphs with float32 graphs, by onnxruntime.

    Args:
        model: What `prolip.load` takes.
        data: Images with captions; None: scenes, with zero-shot classification, too.
        limit: Samples.

    Returns:
        model; cosines of the means (mean and least) and the correlation of uncertainties, of images and texts; R@1
        from captions to images and, of scenes, zero-shot accuracy, each of float32 and of int8.
    """
    require_positive_int(limit, "--limit")
    network = load(model, device="cpu").float()
    with TemporaryDirectory() as name:
        export_onnx(network, name, int8=True)
        graphs = {
            kind: OnnxModel(network, Path(name), suffix)
            for kind, suffix in (("float32", ".onnx"), ("int8", ".int8.onnx"))
        }
        sets = None if data else prepare_evaluation_sets(SCENES, Path(name, "s"), limit=limit, seed=SEED)
        source = open_data(data) if data else sets.retrieval  # type: ignore[union-attr]
        samples = [source.read(i) for i in range(min(limit, len(source)))]
        images, captions = [sample.image for sample in samples], [sample.captions[0] for sample in samples]
        z = {
            kind: (
                inference.embed_images(graph, images, BATCH, False),
                inference.embed_texts(graph, captions, BATCH, False),
            )
            for kind, graph in graphs.items()
        }
        result: dict[str, Any] = {"model": model, "samples": len(samples), "towers": {}, "tasks": {}}
        for number, tower in enumerate(("image", "text")):
            result["towers"][tower] = _compare(z["float32"][number], z["int8"][number])
        logits = {kind: network.logit_parameters.logits_matrix(*pair) for kind, pair in z.items()}
        result["tasks"]["R@1, captions to images"] = {
            kind: (values.argmax(0) == torch.arange(len(samples))).float().mean().item()
            for kind, values in logits.items()
        }
        if sets is not None:
            result["tasks"]["zero-shot accuracy"] = {
                kind: _classify(network, graph, sets.zero_shot, limit) for kind, graph in graphs.items()
            }
    return result


def _compare(a: Gaussian, b: Gaussian) -> dict[str, float]:
    """Cosines of means (N, D), mean and least, and the correlation of uncertainties."""
    cosine = torch.nn.functional.cosine_similarity(a.mean, b.mean)
    correlation = torch.corrcoef(torch.stack([a.uncertainty, b.uncertainty]))[0, 1]
    return {"cosine": cosine.mean().item(), "least": cosine.min().item(), "correlation": correlation.item()}


def _classify(network: ProLIP, graph: OnnxModel, data: Any, limit: int) -> float:
    """Zero-shot accuracy of graphs on labeled images, with the first template."""
    source = data.limited(limit).source
    samples = [source.read(i) for i in range(len(source))]
    labels = torch.tensor([int(sample.extra["cls"]) for sample in samples])
    prompts = [data.templates[0].replace("{c}", name) for name in data.class_names]
    images = inference.embed_images(graph, [sample.image for sample in samples], BATCH, False)
    classes = inference.embed_texts(graph, prompts, BATCH, False)
    logits = network.logit_parameters.logits_matrix(images, classes)
    return (logits.argmax(1) == labels).float().mean().item()


def measure_speed(size: str = "ViT-B-16-768", batch: int = 4, repeats: int = 5) -> dict[str, Any]:
    """Time the image tower of a new model: torch, float32 and int8 graphs, each with one thread.

    Args:
        size: A model size (docs/models.md).
        batch: Images per batch.
        repeats: Interleaved runs of each.

    Returns:
        size, batch, images_per_second (medians by implementation), ratio (int8 to float32), cosine of their means.
    """
    require_positive_int(batch, "--batch")
    require_positive_int(repeats, "--repeats")
    torch.set_num_threads(1)
    model = create(size, train_word_level(["a thing"], context_length=64)).eval()
    side = model.config.image.preprocessing.size
    pixels = torch.randn(batch, 3, side, side, generator=torch.Generator().manual_seed(0))
    with TemporaryDirectory() as name, torch.no_grad():
        export_onnx(model, name, int8=True)
        sessions = {kind: open_session(Path(name, f"image{kind}.onnx")) for kind in ("", ".int8")}
        works: dict[str, Callable[[], Gaussian]] = {
            "torch float32": lambda: model.encode_image(pixels),
            "onnxruntime float32": lambda: _run(sessions[""], pixels),
            "onnxruntime int8": lambda: _run(sessions[".int8"], pixels),
        }
        outputs = {kind: work() for kind, work in works.items()}
        seconds = time_interleaved(works, repeats)
    rates = {kind: batch / statistics.median(times) for kind, times in seconds.items()}
    cosine = torch.nn.functional.cosine_similarity(
        outputs["onnxruntime int8"].mean, outputs["onnxruntime float32"].mean
    )
    return {
        "size": size, "batch": batch, "images_per_second": rates,
        "ratio": rates["onnxruntime int8"] / rates["onnxruntime float32"], "cosine": cosine.min().item(),
    }  # fmt: skip


def print_ids(result: dict[str, Any]) -> None:
    """Print the result of `compare_ids` as a table."""
    rows = [
        (name, f"{row['count']:,}", f"{row['different']:,}", ascii(row["example"])[:60])
        for name, row in result["sets"].items()
    ]
    title = f"{result['model']}: captions of which tokenizer.json gives other ids than the model"
    times = [(name, f"{value:.0f}") for name, value in result["microseconds"].items()]
    print_tables([make_table(None, ["tokenizer"], ["microseconds for a caption of scenes"], times)])
    print_tables([make_table(title, ["captions"], ["number", "different", "example"], rows)])


def print_accuracy(result: dict[str, Any]) -> None:
    """Print the result of `measure_accuracy` as tables."""
    towers = [
        (tower, f"{row['cosine']:.5f}", f"{row['least']:.5f}", f"{row['correlation']:.5f}")
        for tower, row in result["towers"].items()
    ]
    tasks = [(name, *(f"{value:.1%}" for value in row.values())) for name, row in result["tasks"].items()]
    title = f"{result['model']}, {result['samples']} samples: int8 against float32"
    heads = ["mean cosine", "least cosine", "correlation of uncertainties"]
    tables = [
        make_table(title, ["tower"], heads, towers),
        make_table(None, ["task"], ["float32", "int8"], tasks),
    ]
    print_tables(tables)


def print_speed(result: dict[str, Any]) -> None:
    """Print the result of `measure_speed` as a table."""
    rows = [(kind, f"{rate:.3g}") for kind, rate in result["images_per_second"].items()]
    title = (
        f"{result['size']}, batch {result['batch']}, one thread: int8 {result['ratio']:.2f} x float32, "
        f"least cosine {result['cosine']:.5f}"
    )
    print_tables([make_table(title, ["image tower"], ["images per second"], rows)])
