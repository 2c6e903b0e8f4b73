"""The Hugging Face hub: fetching what a model needs, and no more; pushing ours with a card."""

from __future__ import annotations

import tempfile
from pathlib import Path

from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub import errors as hub

from prolip.model.prolip import ProLIP
from prolip.weights.formats.files import FILES, PREPROCESSING, wanted_files
from prolip.weights.model_card import card

TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt",
)  # fmt: skip


def fetch(repo_id: str, revision: str | None = None) -> Path:
    """The folder in the hub's cache with config, weights and tokenizer of a model.

    Cache, token, proxies and HF_HUB_OFFLINE are huggingface_hub's own affair.
    """
    for config, weights in FILES:
        if _get(repo_id, config, revision) is None:
            continue
        for name in weights:
            path = _get(repo_id, name, revision)
            if path is not None:
                for extra in (*TOKENIZER_FILES, *PREPROCESSING):
                    _get(repo_id, extra, revision)
                return path.parent
    raise ValueError(
        f"{_where(repo_id, revision)} holds no model that we know: it has no {wanted_files()} (or, where the hub "
        "can't be reached, they are not in the cache)"
    )


def fetch_tokenizer(repo_id: str, revision: str | None = None) -> Path | None:
    """The folder in the cache with the tokenizer's files; None if there are none."""
    found = [path for name in TOKENIZER_FILES if (path := _get(repo_id, name, revision)) is not None]
    return found[0].parent if found else None


def push(
    model: ProLIP,
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    message: str = "Upload a prolip model",
    license: str | None = None,
    token: str | None = None,
) -> str:
    """Upload the model's folder and, if the repository has none yet, a model card. Returns its address.

    Makes the repository if need be. Log in first (`hf auth login`), or set HF_TOKEN, or give a token.
    """
    api = HfApi(token=token)
    with tempfile.TemporaryDirectory() as name:
        folder = model.save(name)
        try:
            url = api.create_repo(repo_id, private=private, exist_ok=True)
            if not api.file_exists(repo_id, "README.md", revision=revision):
                (folder / "README.md").write_text(card(model, repo_id, license), encoding="utf-8")
            api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message=message, revision=revision)
        except (
            Exception
        ) as error:  # the hub's own errors, and whatever its HTTP library raises without a network
            raise OSError(
                f"pushing to {repo_id} failed: {_first_line(error)}. Is the hub reachable, and the token there "
                "(`hf auth whoami`)?"
            ) from error
    return str(url)


def _get(repo_id: str, name: str, revision: str | None) -> Path | None:
    """One file, from the cache or the hub; None if the repository doesn't have it."""
    try:
        return Path(hf_hub_download(repo_id, name, revision=revision))
    except hub.EntryNotFoundError as error:
        if isinstance(error, hub.LocalEntryNotFoundError) and not _cached(repo_id, revision):
            raise OSError(
                f"{_where(repo_id, revision)} is not in the cache, and the hub can't be reached "
                f"(or HF_HUB_OFFLINE is set): {_first_line(error)}"
            ) from error
        return None
    except hub.GatedRepoError as error:
        raise OSError(f"{repo_id} is gated: accept its terms on its page, then `hf auth login`") from error
    except (hub.RepositoryNotFoundError, hub.RevisionNotFoundError, hub.HFValidationError) as error:
        raise OSError(
            f"there is no {_where(repo_id, revision)} (or it is private: `hf auth login`), and no such folder or file "
            f"here either: {_first_line(error)}"
        ) from error
    except (hub.HfHubHTTPError, hub.OfflineModeIsEnabled, ConnectionError) as error:
        raise OSError(f"{_where(repo_id, revision)} could not be fetched: {_first_line(error)}") from error


def _cached(repo_id: str, revision: str | None) -> bool:
    """Whether any file of the repository lies in the cache, so that a missing one is missing there, not unreachable."""
    from huggingface_hub import try_to_load_from_cache

    names = [name for config, weights in FILES for name in (config, *weights)]
    return any(
        isinstance(try_to_load_from_cache(repo_id, name, revision=revision), str)
        for name in (*names, *TOKENIZER_FILES)
    )


def _where(repo_id: str, revision: str | None) -> str:
    return f"hub repository {repo_id}" + (f" at {revision}" if revision else "")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
