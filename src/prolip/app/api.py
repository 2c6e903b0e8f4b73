"""The HTTP API: the functions of the tabs, with forms as requests and JSON as answers. docs/app.md describes it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, get_args

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from prolip.app import classify, collection, compare, search, traverse
from prolip.app.answers import describe_failure
from prolip.app.config import AppConfig
from prolip.app.inputs import MAX_EXAMPLES, MAX_IMAGES, InputError, NamedImage, decode_image
from prolip.app.workspace import Workspaces
from prolip.choices import DuplicateKind, Modality
from prolip.files import replace_nonfinite

if TYPE_CHECKING:
    from fastapi import FastAPI

MAX_FIELDS = 2000
MAX_FIELD_BYTES = 100_000


class Form:
    """The fields of a request, read with checks.

    Args:
        form: The form, as it was parsed.
        files: The content of each file, by field: (name, bytes).
    """

    def __init__(self, form: FormData, files: dict[str, list[tuple[str, bytes]]]) -> None:
        self._form = form
        self._files = files

    def texts(self, name: str) -> list[str]:
        """All texts of a field."""
        return [value for value in self._form.getlist(name) if isinstance(value, str) and value.strip()]

    def text(self, name: str, default: str = "") -> str:
        """The text of a field."""
        return next(iter(self.texts(name)), default)

    def number(self, name: str) -> float | None:
        """The number of a field, None without one; InputError if it is none."""
        text = self.text(name)
        try:
            value = float(text) if text else None
        except ValueError:
            value = math.nan
        if value is not None and not math.isfinite(value):
            raise InputError(f"{name} must be a number.")
        return value

    def integer(self, name: str) -> int | None:
        """The whole number of a field, None without one; InputError if it is none."""
        text = self.text(name)
        if text and not re.fullmatch(r"-?[0-9]{1,15}", text):
            raise InputError(f"{name} must be a whole number.")
        return int(text) if text else None

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> Any:
        """The text of a field, one of some; InputError if it is another."""
        text = self.text(name, default)
        if text not in choices:
            raise InputError(f"{name} must be one of {', '.join(choices)}.")
        return text

    def images(self, name: str, maximum: int = MAX_IMAGES) -> list[NamedImage]:
        """The images of a field; InputError if one can't be read."""
        files = self._files.get(name, [])
        if len(files) > maximum:
            raise InputError(f"There are {len(files)} images. At most {maximum} are possible.")
        return [decode_image(content, file_name) for file_name, content in files]

    def image(self, name: str) -> NamedImage:
        """The image of a field; InputError if there is none."""
        images = self.images(name)
        if not images:
            raise InputError(f"The request has no file in the field {name}.")
        return images[0]


Endpoint = Callable[[Workspaces, Form], Response]


def add_routes(app: FastAPI, workspaces: Workspaces, config: AppConfig) -> None:
    """Add the API to an application.

    Args:
        app: The application.
        workspaces: The models and databases.
        config: Limits of uploads.
    """
    endpoints: dict[str, Endpoint] = {
        "compare": _compare, "search": _search, "traverse": _traverse, "collection": _collection, "export": _export,
        "classify": _classify,
    }  # fmt: skip

    def make_route(endpoint: Endpoint) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            try:
                form = await _read_form(request, config.max_upload_mb * 1_000_000)
                return await run_in_threadpool(endpoint, workspaces, form)
            except Exception as error:
                sentence, is_of_request = describe_failure(error)
                return JSONResponse({"error": sentence}, 400 if is_of_request else 500)

        return answer

    for name, endpoint in endpoints.items():
        app.add_route(f"/api/{name}", make_route(endpoint), methods=["POST"])

    async def list_models(request: Request) -> Response:
        return JSONResponse({"models": workspaces.titles})

    app.add_route("/api/models", list_models, methods=["GET"])


async def _read_form(request: Request, max_file_bytes: int) -> Form:
    """Parse the form of a request; InputError if it is none, or a file is too large."""
    try:
        form = await request.form(
            max_files=MAX_EXAMPLES, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD_BYTES
        )
    except HTTPException as error:
        raise InputError(f"The request is not a form that can be read: {error.detail}") from None
    files: dict[str, list[tuple[str, bytes]]] = {}
    for name, value in form.multi_items():
        if isinstance(value, UploadFile):
            if (value.size or 0) > max_file_bytes:
                raise InputError(f"A file may have at most {max_file_bytes:,} bytes.")
            files.setdefault(name, []).append((value.filename or "image", await value.read()))
    await form.close()
    return Form(form, files)


def _to_json(result: Any) -> Response:
    """A dataclass as JSON; numbers that are not finite are null."""
    return JSONResponse(replace_nonfinite(asdict(result)))


def _compare(workspaces: Workspaces, form: Form) -> Response:
    """Fields: model, image (files), caption (repeated)."""
    workspace = workspaces.get(form.text("model"))
    return _to_json(compare.compare(workspace, form.images("image"), form.texts("caption")))


def _search(workspaces: Workspaces, form: Form) -> Response:
    """Fields: model, text or image (file) or row, modality, k, matching, max_uncertainty."""
    k, images = form.integer("k"), form.images("image")
    modality: Modality = form.choice("modality", get_args(Modality), "image")
    request = search.SearchRequest(
        text=form.text("text"),
        image=images[0] if images else None,
        row=form.integer("row"),
        modality=modality,
        k=12 if k is None else k,
        matching=form.number("matching"),
        max_uncertainty=form.number("max_uncertainty"),
    )
    response = search.search(workspaces.get(form.text("model")), request)
    return JSONResponse(json.loads(response.to_json()))


def _traverse(workspaces: Workspaces, form: Form) -> Response:
    """Fields: model, image (file), caption (repeated)."""
    workspace = workspaces.get(form.text("model"))
    return _to_json(traverse.traverse(workspace, form.image("image"), form.texts("caption")))


def _read_collection_request(form: Form) -> collection.CollectionRequest:
    """Fields: rank_by, keep_fraction, duplicates."""
    defaults, keep = collection.CollectionRequest(), form.number("keep_fraction")
    duplicates = form.choice("duplicates", (*get_args(DuplicateKind), "none"), str(defaults.duplicates))
    return collection.CollectionRequest(
        rank_by=form.choice("rank_by", collection.CRITERIA, defaults.rank_by),
        keep_fraction=defaults.keep_fraction if keep is None else keep,
        duplicates=None if duplicates == "none" else duplicates,
    )


def _collection(workspaces: Workspaces, form: Form) -> Response:
    """Fields: model, rank_by, keep_fraction, duplicates."""
    return _to_json(
        collection.inspect_collection(workspaces.get(form.text("model")), _read_collection_request(form))
    )


def _export(workspaces: Workspaces, form: Form) -> Response:
    """Fields: those of collection; choice, format. The answer is the file."""
    name, content = collection.export_selection(
        workspaces.get(form.text("model")),
        _read_collection_request(form),
        form.choice("choice", get_args(collection.Choice), "kept"),
        form.choice("format", get_args(collection.ExportFormat), "csv"),
    )
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type="application/octet-stream", headers=headers)


def _classify(workspaces: Workspaces, form: Form) -> Response:
    """Fields: model, image (files), class (repeated), template (repeated), example (files), label (repeated)."""
    workspace = workspaces.get(form.text("model"))
    examples = classify.Examples(form.images("example", MAX_EXAMPLES), form.texts("label"))
    return _to_json(
        classify.classify(
            workspace, form.images("image"), form.texts("class"),
            form.texts("template") or list(workspace.examples.templates), examples,
        )
    )  # fmt: skip
