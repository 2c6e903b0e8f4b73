"""Workspaces: a model with the database that it is looked at with, opened once and shared by all requests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from PIL import Image

from prolip.app.builtin import (
    CAPTION_COLUMNS,
    BuiltinCollection,
    LabeledExamples,
    list_builtin,
    write_table,
)
from prolip.app.config import AppConfig
from prolip.app.inputs import InputError, NamedImage, shorten_name
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.embeddings.embed import embed
from prolip.embeddings.header import has_embeddings
from prolip.gaussian import Gaussian
from prolip.model.prolip import ProLIP
from prolip.reports.hits import HitImages
from prolip.reports.originals import READ_ERRORS
from prolip.retrieval.index.build import index
from prolip.retrieval.index.database import Database
from prolip.retrieval.response import load_database_model
from prolip.retrieval.traversal.api import open_caption_search
from prolip.retrieval.traversal.traverse import CaptionSearch
from prolip.weights.load import load

log = logging.getLogger("prolip.app")

NUM_SAMPLES = 12
"""Images of the collection that can be chosen in place of an upload."""
ITEM_COLUMNS = ("row", "origin", "id", "index", "modality", "uncertainty", "caption", "path", "url")
DEFAULT_CLASSES = LabeledExamples(("cat", "dog"), ("a photo of a {c}.", "a picture of a {c}.", "{c}"))


@dataclass(eq=False)
class ModelWorkspace:
    """A model, and the database that it is looked at with.

    Attributes:
        name: Its name in the list of the page.
        title: What is in it, for people.
        model: The model.
        database: The database; None: there is none.
        folder: A folder for scores and exports, which is removed when the server ends.
        captions: Captions to begin with.
        query: Search to begin with.
        traverse_captions: Captions to traverse to begin with; empty: those of the database.
        examples: Classes to begin with.
    """

    name: str
    title: str
    model: ProLIP
    database: Database | None
    folder: Path
    captions: tuple[str, ...] = ("a photo", "a photo of a cat", "a photo of a dog")
    query: str = ""
    traverse_captions: tuple[str, ...] = ()
    examples: LabeledExamples = DEFAULT_CLASSES
    model_lock: threading.Lock = field(default_factory=threading.Lock)
    _read_lock: threading.Lock = field(default_factory=threading.Lock)
    filter_lock: threading.Lock = field(default_factory=threading.Lock)

    def embed_images(self, images: Sequence[Image.Image]) -> Gaussian:
        """Embed images (N, D); one request at a time, since a tokenizer or an encoder need not be safe for threads."""
        with self.model_lock:
            return self.model.embed_images(list(images), progress=False)

    def embed_texts(self, texts: Sequence[str]) -> Gaussian:
        """Embed texts (N, D); one request at a time."""
        with self.model_lock:
            return self.model.embed_texts(list(texts), progress=False)

    @cached_property
    def null(self) -> Gaussian:
        """(1, D), the embedding of ""."""
        return self.embed_texts([""])

    def find_unknown_words(self, texts: Sequence[str]) -> list[str]:
        """Words of texts that the model never met in training, each once."""
        with self.model_lock:
            return list(dict.fromkeys(word for text in texts for word in self.model.find_unknown_words(text)))

    def require_database(self) -> Database:
        """The database; InputError if there is none."""
        if self.database is None:
            raise InputError("This needs a database: start the explorer with --database DB (prolip index).")
        return self.database

    def get_item(self, row: int) -> dict[str, Any]:
        """The item of the database with a row number; InputError if there is none."""
        batches = self.require_database().iter_batches(ITEM_COLUMNS, f"row = {int(row)}")
        items: list[dict[str, Any]] = [item for batch in batches for item in batch.to_pylist()]
        if not items:
            raise InputError(f"There is no row {int(row)} in the database.")
        return items[0]

    def read_image(self, item: Mapping[str, Any]) -> Image.Image | None:
        """Read the image of an item of the database; None if it can't be read."""
        with self._read_lock:
            try:
                return self._images.read(dict(item))
            except READ_ERRORS as error:
                log.info("the image of row %s can't be read: %s", item.get("row"), error)
                return None

    @cached_property
    def _images(self) -> HitImages:
        """The images of the database."""
        return HitImages(self.require_database())

    @cached_property
    def samples(self) -> tuple[NamedImage, ...]:
        """The first images of the collection that can be read, to choose from in place of an upload."""
        if self.database is None:
            return self.examples.images[:NUM_SAMPLES]
        items: list[dict[str, Any]] = []
        for batch in self.database.iter_batches(ITEM_COLUMNS, "modality = 'image'"):
            items += batch.to_pylist()
            if len(items) >= NUM_SAMPLES:
                break
        items = sorted(items, key=lambda item: item["row"])[:NUM_SAMPLES]
        images = [(get_label(item), self.read_image(item)) for item in items]
        return tuple(NamedImage(label, image) for label, image in images if image is not None)

    @cached_property
    def caption_search(self) -> CaptionSearch | list[str]:
        """The captions of the database, for traversals."""
        return open_caption_search(self.require_database().uri)

    def open_embeddings(self) -> EmbeddingDataset:
        """The embeddings of which the database was made; InputError if they are not where they were."""
        origins = list(self.require_database().origins.values())
        location = origins[0]["location"]
        if not has_embeddings(location):
            raise InputError("The embeddings of which the database was made are not where they were then.")
        return EmbeddingDataset.open(location)


def get_label(item: Mapping[str, Any]) -> str:
    """A short name of an item of a database: that of its file, or its id.

    Args:
        item: A row, with `path` and `id`.

    Returns:
        The name.
    """
    return shorten_name(item["path"] or item["id"])


class Workspaces:
    """All workspaces of a server. Each is opened when it is needed first, once.

    Args:
        config: Which model and database to show.
        folder: A folder for what is written, removed when the server ends.
    """

    def __init__(self, config: AppConfig, folder: Path) -> None:
        self._openers: dict[str, Callable[[], ModelWorkspace]] = {}
        self._titles: dict[str, str] = {}
        self._opened: dict[str, ModelWorkspace] = {}
        self._locks: dict[str, threading.Lock] = {}
        known = [] if config.database is not None else list_builtin()
        chosen = [builtin for builtin in known if config.model in (None, builtin.model)]
        self.is_builtin = bool(chosen)
        if chosen:
            for builtin in chosen:
                self._add(
                    builtin.model, f"{builtin.title} ({builtin.model})", _make_opener(builtin, config, folder)
                )
        else:
            name = Path(config.database or config.model or "").name or "database"
            self._add(name, name, lambda: open_users(config, folder, name))

    def _add(self, name: str, title: str, opener: Callable[[], ModelWorkspace]) -> None:
        """Add a workspace that is not open yet."""
        self._openers[name], self._titles[name], self._locks[name] = opener, title, threading.Lock()

    @property
    def titles(self) -> dict[str, str]:
        """Titles of the workspaces by name, the first one first."""
        return dict(self._titles)

    @property
    def first(self) -> str:
        """Name of the first workspace."""
        return next(iter(self._openers))

    def get(self, name: str | None) -> ModelWorkspace:
        """Get a workspace, which is opened if it isn't yet.

        Args:
            name: Its name; None or "": the first one.

        Returns:
            The workspace.

        Raises:
            InputError: There is none of that name.
            ValueError, OSError: It can't be opened.
        """
        name = name or self.first
        if name not in self._openers:
            raise InputError(f"There is no model of this name. There are: {', '.join(self._openers)}.")
        with self._locks[name]:
            if name not in self._opened:
                self._opened[name] = self._openers[name]()
            return self._opened[name]

    def open_in_background(self) -> None:
        """Begin to open all workspaces, one after another, so that the first request needn't wait for it."""

        def open_all() -> None:
            for name in self._openers:
                try:
                    workspace = self.get(name)
                    _ = workspace.null, workspace.samples
                except Exception:
                    log.exception("%s can't be opened", name)

        threading.Thread(target=open_all, name="open-workspaces", daemon=True).start()


def _make_opener(builtin: BuiltinCollection, config: AppConfig, folder: Path) -> Callable[[], ModelWorkspace]:
    """A function that opens a built-in collection."""
    return lambda: open_builtin(
        builtin, load(builtin.model, device=config.device).eval(), folder / builtin.model
    )


def open_builtin(builtin: BuiltinCollection, model: ProLIP, folder: Path) -> ModelWorkspace:
    """Write, embed and index a built-in collection.

    Args:
        builtin: The collection.
        model: Embeds it.
        folder: An empty or new folder.

    Returns:
        The workspace.
    """
    table = write_table(folder / "images", builtin.make_samples())
    embeddings = embed(model, table, folder / "embeddings", captions=CAPTION_COLUMNS, progress=False)
    database = index(embeddings, folder / "database", progress=False).database
    return ModelWorkspace(
        builtin.model,
        builtin.title,
        model,
        database,
        folder,
        builtin.captions,
        builtin.query,
        builtin.traverse_captions,
        builtin.make_examples(),
    )


def open_users(config: AppConfig, folder: Path, name: str) -> ModelWorkspace:
    """Open the model and the database of the command line.

    Args:
        config: At least one of model and database.
        folder: For what is written.
        name: Name of the workspace.

    Returns:
        The workspace; without a database, of the model alone.

    Raises:
        ValueError, OSError: One of them can't be opened, or they don't belong together.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if config.database is None:
        assert config.model is not None
        return ModelWorkspace(name, name, load(config.model, device=config.device).eval(), None, folder)
    database = Database.open(config.database)
    model = load_database_model(database, config.model, config.device)
    return ModelWorkspace(name, name, model, database, folder)
