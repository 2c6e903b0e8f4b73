"""EmbedderConfig: which embeddings evaluators use: a model's, or those of files; free of torch, for `--help`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from prolip.checks import require_fraction, require_positive_int
from prolip.configs import Advanced, make_tuples, require_field_types
from prolip.files import get_cache_folder


@dataclass(frozen=True, kw_only=True)
class EmbedderConfig:
    """Where evaluators get embeddings from: give `model`, `embeddings` or both."""

    model: str | None = None
    """Model folder, training run, folder or file of another format, or hub id (owner/name). None: what is not in
    the embeddings is embedded with the model that they name, if it is found."""
    embeddings: tuple[str, ...] = ()
    """Folders or addresses that prolip embed wrote: their images and texts are not embedded again."""
    cache: str | None = None
    """Folder for embeddings, which a second evaluation reuses. None: the user's cache (~/.cache/prolip/embeddings).
    no: no cache."""
    batch_size: int = 64
    """Images per batch."""
    max_bad_fraction: float = 0.01
    """Fail if a larger fraction of the images is bad (damaged, too large, without label or caption). Below it bad
    images are skipped and counted."""
    device: str | None = None
    """cpu, cuda, ... None: a GPU if there is one."""
    text_batch_size: Advanced[int] = 256
    """Texts per batch."""
    progress: Advanced[bool | None] = None
    """Show a progress bar. None: if stderr is a terminal."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is invalid."""
        make_tuples(self)
        require_field_types(self)
        require_positive_int(self.batch_size, "batch_size")
        require_positive_int(self.text_batch_size, "text_batch_size")
        require_fraction(self.max_bad_fraction, "max_bad_fraction")
        if self.cache is not None:
            from prolip.storage import require_local_folder

            require_local_folder(self.cache, "cache")

    def get_cache_folder(self) -> Path | None:
        """The folder of the cache; None: nothing is cached."""
        if self.cache is None:
            return get_cache_folder("embeddings")
        return None if self.cache == "no" else Path(self.cache).expanduser()
