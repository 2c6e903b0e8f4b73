"""Hugging Face hub: download of the files a model needs, model cards, errors of uploads.

huggingface_hub takes a third of the time of importing torch, and local models don't need it: functions import it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from prolip.model.config import ImageConfig, ModelConfig
from prolip.model.frozen_config import FrozenImageConfig, FrozenTextConfig
from prolip.model.prolip import ProLIP
from prolip.preprocessing.words import WORDS_FILE
from prolip.weights.formats.files import CONFIG_AND_WEIGHTS, PREPROCESSING_FILES, describe_expected_files

if TYPE_CHECKING:
    from huggingface_hub import HfApi

TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt",
)  # fmt: skip

PROBE_SECONDS = 2.0
"""How long the hub has to answer; after that, files are taken from its cache alone."""

CARD_TEMPLATE = """---
library_name: prolip
pipeline_tag: zero-shot-image-classification
{license}tags:
- prolip
- probabilistic-embeddings
- clip
---

# {name}

A [prolip](https://arxiv.org/abs/2410.18857) model: {summary}.

| | |
|---|---|
| parameters | {parameters:,} |
| embedding | {dimensions} dimensions |
| images | {image_size} x {image_size} pixels{patches} |
| texts | up to {context} tokens of a vocabulary of {vocabulary:,} |
| log-variances | image: {image_uncertainty}, text: {text_uncertainty}{widths} |
| contrastive loss | {contrastive_loss} |
{origin}{encoders}
```python
import prolip

model = prolip.load("{repo_id}")
images = model.embed_images(["cat.jpg"])
texts = model.embed_texts(["a cat", "an animal"])
images.uncertainty, texts.uncertainty
model.match_probability_matrix(images, texts)
```

Training data, evaluation and intended use: to be filled in by whoever trained it.
"""


def fetch(repo_id: str, revision: str | None = None) -> Path:
    """Download config, weights, tokenizer and preprocessing config of a model.

    huggingface_hub handles cache, token, proxies and HF_HUB_OFFLINE. If the hub doesn't answer, files are taken from
    the cache.

    Args:
        repo_id: `owner/name`.
        revision: Branch, tag or commit; None: the default branch.

    Returns:
        The folder in the hub's cache.

    Raises:
        ValueError: If the repository has no model in a known format.
        OSError: If the hub is unreachable, or the repository is missing, private or gated.
    """
    problem = find_network_problem()
    for config, weights in CONFIG_AND_WEIGHTS:
        if _download(repo_id, config, revision, problem) is None:
            continue
        for name in weights:
            path = _download(repo_id, name, revision, problem)
            if path is not None:
                for extra in (*TOKENIZER_FILES, *PREPROCESSING_FILES, WORDS_FILE):
                    _download(repo_id, extra, revision, problem)
                return path.parent
    raise ValueError(
        f"{_describe_repo(repo_id, revision)} has no model in a known format: it has no {describe_expected_files()} "
        "(or, if the hub is unreachable, they are not in the cache)"
    )


def fetch_tokenizer(repo_id: str, revision: str | None = None) -> Path | None:
    """Download the tokenizer of a repository.

    Args:
        repo_id: `owner/name`.
        revision: Branch, tag or commit; None: the default branch.

    Returns:
        The folder in the hub's cache; None if the repository has no tokenizer.

    Raises:
        OSError: If the hub is unreachable, or the repository is missing, private or gated.
    """
    problem = find_network_problem()
    downloads = (_download(repo_id, name, revision, problem) for name in TOKENIZER_FILES)
    paths = [path for path in downloads if path is not None]
    return paths[0].parent if paths else None


def find_network_problem() -> str | None:
    """Find out why the hub can't be asked now, within `PROBE_SECONDS`.

    Downloads of huggingface_hub retry for half a minute per file. This is one request without retries; it runs in a
    thread, because looking up the name of the host has no timeout.

    Returns:
        The reason, to follow "because"; None if the hub answers.
    """
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    reasons: list[str | None] = []

    def probe() -> None:
        """Append None if the hub answers, else the error."""
        try:
            get_session().head(constants.ENDPOINT, timeout=PROBE_SECONDS)
        except Exception as error:  # of the HTTP library, which changes with the version of huggingface_hub
            reasons.append(_first_line(error))
        else:
            reasons.append(None)

    thread = Thread(target=probe, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    if not reasons:
        return f"{constants.ENDPOINT} did not answer within {PROBE_SECONDS:g} seconds"
    return reasons[0] and f"{constants.ENDPOINT} can't be reached ({reasons[0]})"


@contextmanager
def open_upload(repo_id: str, token: str | None) -> Iterator[HfApi]:
    """Context manager of an upload; any error in it becomes an OSError with advice.

    Args:
        repo_id: `owner/name`, for the message.
        token: Access token of the hub; None: HF_TOKEN or the one of `hf auth login`.

    Yields:
        The hub's API.
    """
    from huggingface_hub import HfApi

    try:
        yield HfApi(token=token)
    except Exception as error:  # errors of the hub and, without a network, of its HTTP library
        raise OSError(
            f"Upload to {repo_id} failed: {_first_line(error)}. Check that the hub is reachable and the token is "
            "valid (`hf auth whoami`)."
        ) from error


def make_model_card(model: ProLIP, repo_id: str, license: str | None = None) -> str:
    """The model card: Markdown with the hub's front matter.

    Args:
        model: The model.
        repo_id: Hub id.
        license: The hub's name of the license, for the front matter; None: none is named.

    Returns:
        The content of README.md.
    """
    config = model.config
    summary = (
        "images and texts become points (no variances)"
        if config.deterministic
        else "an image or a text becomes a Gaussian, whose variance is its uncertainty"
    )
    origin = model.origin.get("format")
    return CARD_TEMPLATE.format(
        name=repo_id.rsplit("/", maxsplit=1)[-1], repo_id=repo_id, summary=summary,
        license=f"license: {license}\n" if license else "",
        parameters=sum(p.numel() for p in model.parameters()), dimensions=config.embed_dim,
        image_size=config.image.preprocessing.size,
        patches=f", patches of {config.image.patch_size}" if isinstance(config.image, ImageConfig) else "",
        encoders=_describe_encoders(config),
        context=config.text.tokenizer.context_length, vocabulary=config.text.tokenizer.vocab_size,
        image_uncertainty=config.image.uncertainty, text_uncertainty=config.text.uncertainty,
        widths="; one per sample" if config.image.isotropic and config.text.isotropic else "",
        contrastive_loss=config.contrastive_loss,
        origin=f"| weights started from | {origin} |\n" if origin else "",
    )  # fmt: skip


def _describe_encoders(config: ModelConfig) -> str:
    """Rows of the model card: names, digests and licenses of frozen encoders; "" for another model."""
    return "".join(
        f"| frozen {modality} encoder | {_hide_folder(encoder.name)} (digest {encoder.digest}, {encoder.dim} features, "
        f"license {encoder.license or 'not stated'}"
        f"{', its files are in this repository' if encoder.is_bundled else ''}) |\n"
        for modality, tower in (("image", config.image), ("text", config.text))
        if isinstance(tower, FrozenImageConfig | FrozenTextConfig)
        for encoder in (tower.encoder,)
    )


def _hide_folder(name: str) -> str:
    """A name without the folder, if it is a path of the machine that made the model."""
    return Path(name).name if Path(name).is_absolute() else name


def _download(repo_id: str, name: str, revision: str | None, problem: str | None) -> Path | None:
    """Path of a file in the cache, downloaded if need be; None if the repository doesn't have it.

    With a `problem`, of `find_network_problem`, only the cache is read.

    Raises OSError with advice if the hub is unreachable, or the repository is missing, private or gated.
    """
    from huggingface_hub import errors as hub
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(repo_id, name, revision=revision, local_files_only=problem is not None))
    except hub.EntryNotFoundError as error:
        if isinstance(error, hub.LocalEntryNotFoundError) and not _is_cached(repo_id, revision):
            raise OSError(
                f"{_describe_repo(repo_id, revision)} is not in the cache, and can't be downloaded, because "
                f"{problem or _first_line(error)}. Run this again with a network, or pass a local folder: `hf download "
                f"{repo_id} --local-dir FOLDER` makes one on a machine with a network. (There is no local folder or "
                f"file {repo_id} here.)"
            ) from error
        return None
    except hub.GatedRepoError as error:
        raise OSError(
            f"{repo_id} is gated. Accept its terms on its page, then run `hf auth login`."
        ) from error
    except (hub.RepositoryNotFoundError, hub.RevisionNotFoundError, hub.HFValidationError) as error:
        raise OSError(
            f"There is no {_describe_repo(repo_id, revision)} (or it is private: run `hf auth login`), and no such "
            f"local folder or file: {_first_line(error)}"
        ) from error
    except (hub.HfHubHTTPError, hub.OfflineModeIsEnabled, ConnectionError) as error:
        raise OSError(
            f"{_describe_repo(repo_id, revision)} could not be downloaded: {_first_line(error)}"
        ) from error


def _is_cached(repo_id: str, revision: str | None) -> bool:
    """Whether the cache has any file of a model or tokenizer of the repository.

    If it has one and another file is not cached, `_download` takes it that the repository lacks that file.
    """
    from huggingface_hub import try_to_load_from_cache

    names = [name for config, weights in CONFIG_AND_WEIGHTS for name in (config, *weights)]
    return any(
        isinstance(try_to_load_from_cache(repo_id, name, revision=revision), str)
        for name in (*names, *TOKENIZER_FILES)
    )


def _describe_repo(repo_id: str, revision: str | None) -> str:
    """ "hub repository owner/name at REVISION", for messages."""
    return f"hub repository {repo_id}" + (f" at {revision}" if revision else "")


def _first_line(error: Exception) -> str:
    """First line of an error's message, without its full stop; the error's type if the message is empty."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
