"""Handlers of the page: they read components, call a tab's function and show its result, and keep nothing."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from prolip.app import classify, collection, compare, search, traverse
from prolip.app.answers import describe_failure
from prolip.app.components import gradio
from prolip.app.inputs import (
    MAX_EXAMPLES,
    MAX_PROMPTS,
    MAX_TEXTS,
    InputError,
    NamedImage,
    parse_lines,
    read_uploads,
)
from prolip.app.views import markup
from prolip.app.views.classify import show_classes
from prolip.app.views.collection import show_collection
from prolip.app.views.compare import show_comparison
from prolip.app.views.search import show_response
from prolip.app.views.traverse import show_paths
from prolip.app.workspace import ModelWorkspace, Workspaces

NUM_COMPARED = 4
"""Images of the collection that are compared while nothing is dropped in."""


def wrap(body: str) -> str:
    """Make HTML that the style sheet applies to.

    Args:
        body: HTML.

    Returns:
        HTML.
    """
    return f'<div class="pl-root">{body}</div>'


def guarded(handler: Callable[..., str]) -> Callable[..., str]:
    """Make a handler that shows an error as a message on the page.

    Args:
        handler: Returns HTML.

    Returns:
        A handler that raises nothing.
    """

    @functools.wraps(handler)
    def call(*values: Any) -> str:
        try:
            return wrap(handler(*values))
        except Exception as error:
            return wrap(markup.make_message(describe_failure(error)[0], "error"))

    return call


class Handlers:
    """What the page does. Each handler takes plain values of components, and keeps nothing between requests.

    Args:
        workspaces: The models and databases.
    """

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    def compare(self, name: str, paths: Sequence[str], captions: str) -> str:
        """Compare uploads, or the first images of the collection, with captions."""
        workspace = self._workspaces.get(name)
        images = read_uploads(paths) or list(workspace.samples[:NUM_COMPARED])
        result = compare.compare(workspace, images, parse_lines(captions, "caption", MAX_TEXTS))
        return show_comparison(result, [one.image for one in images])

    def search(self, name: str, text: str, path: str | None, *options: Any) -> str:
        """Search for a text, or an image if there is one."""
        workspace = self._workspaces.get(name)
        image = read_uploads([path])[0] if path else None
        request = search.SearchRequest(text=text or "", image=image, **_read_search_options(*options))
        return show_response(workspace, search.search(workspace, request))

    def search_from(self, name: str, row: Any, *options: Any) -> str:
        """Search for an item of the database."""
        workspace = self._workspaces.get(name)
        request = search.SearchRequest(row=int(row), **_read_search_options(*options))
        return show_response(workspace, search.search(workspace, request))

    def on_click(
        self,
        name: str,
        modality: Any,
        k: Any,
        only: Any,
        matching: Any,
        uncertain: Any,
        event: gradio.EventData,
    ) -> str:
        """Search for the item whose card was clicked."""
        options = (modality, k, only, matching, uncertain)
        return guarded(self.search_from)(name, getattr(event, "row", -1), *options)

    def traverse(self, name: str, path: str | None, sample: object, captions: str) -> str:
        """Traverse captions for an upload, or for an image of the collection."""
        workspace = self._workspaces.get(name)
        image = _choose_image(workspace, path, sample)
        lines = parse_lines(captions, "caption", traverse.MAX_CAPTIONS)
        return show_paths(traverse.traverse(workspace, image, lines), image.image)

    def inspect(self, name: str, *options: Any) -> str:
        """Filter the collection, and list what stands out."""
        workspace = self._workspaces.get(name)
        return show_collection(
            workspace, collection.inspect_collection(workspace, _read_collection_options(*options))
        )

    def export(
        self, name: str, rank_by: str, keep: float, duplicates: str, choice: Any, kind: Any
    ) -> tuple[Any, str]:
        """Write an export into a folder of uploads, from which it is served and deleted."""
        try:
            workspace, request = (
                self._workspaces.get(name),
                _read_collection_options(rank_by, keep, duplicates),
            )
            file_name, content = collection.export_selection(workspace, request, choice, kind)
            path = Path(tempfile.mkdtemp(dir=gradio.utils.get_upload_folder())) / file_name
            path.write_bytes(content)
        except Exception as error:
            return None, wrap(markup.make_message(describe_failure(error)[0], "error"))
        return str(path), ""

    def classify(self, name: str, path: str | None, sample: object, *texts: Any) -> str:
        """Classify an upload or an image of the collection, with weights learned from examples if there are any."""
        workspace = self._workspaces.get(name)
        class_names, templates, example_paths, labels, use_builtin = texts
        image = _choose_image(workspace, path, sample)
        result = classify.classify(
            workspace, [image], parse_lines(class_names, "class", MAX_PROMPTS),
            parse_lines(templates, "template", MAX_PROMPTS),
            _read_examples(workspace, example_paths, labels, use_builtin),
        )  # fmt: skip
        return show_classes(result, [image.image])

    def load_defaults(self, name: str) -> list[Any]:
        """Fill the page with what a workspace begins with."""
        try:
            workspace = self._workspaces.get(name)
        except Exception as error:
            return [gradio.skip()] * 7 + [wrap(markup.make_message(describe_failure(error)[0], "error"))]
        samples = [(one.name, index) for index, one in enumerate(workspace.samples)]
        pick = gradio.Dropdown(choices=samples, value=0 if samples else None)
        return [
            "\n".join(workspace.captions), workspace.query, pick, pick,
            "\n".join(workspace.traverse_captions), "\n".join(workspace.examples.class_names),
            "\n".join(workspace.examples.templates), "",
        ]  # fmt: skip


def _read_search_options(
    modality: Any, k: float, only_matching: bool, matching: float, max_uncertainty: float
) -> dict[str, Any]:
    """Options of a search from the components of the page: 100 % leaves nothing out."""
    return {
        "modality": modality,
        "k": int(k),
        "matching": float(matching) / 100 if only_matching else None,
        "max_uncertainty": None if max_uncertainty >= 100 else float(max_uncertainty) / 100,
    }


def _read_collection_options(
    rank_by: Any, keep_percent: float, duplicates: Any
) -> collection.CollectionRequest:
    """The request of the tab Collection."""
    return collection.CollectionRequest(
        rank_by=rank_by,
        keep_fraction=float(keep_percent) / 100,
        duplicates=None if duplicates == "none" else duplicates,
    )


def _choose_image(workspace: ModelWorkspace, path: str | None, sample: object) -> NamedImage:
    """The upload, or else an image of the collection; InputError if there is neither."""
    if path:
        return read_uploads([path])[0]
    if not isinstance(sample, int) or not 0 <= sample < len(workspace.samples):
        raise InputError("Drop in an image, or choose one of the collection.")
    return workspace.samples[sample]


def _read_examples(
    workspace: ModelWorkspace, paths: Sequence[str], labels: str, use_builtin: bool
) -> classify.Examples | None:
    """Examples to learn from: uploads with a label per line, or those of the workspace; None: there are none."""
    if paths:
        lines = [line.strip() for line in (labels or "").splitlines() if line.strip()]
        return classify.Examples(read_uploads(paths, MAX_EXAMPLES), lines)
    builtin = workspace.examples
    if use_builtin and builtin.images:
        return classify.Examples(builtin.images, [builtin.class_names[label] for label in builtin.labels])
    return None
