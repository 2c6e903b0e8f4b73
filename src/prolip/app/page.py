"""The page: tabs of Gradio's components, wired to the handlers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prolip.app import search
from prolip.app.components import gradio, make_upload, make_uploads
from prolip.app.handlers import Handlers, guarded, wrap
from prolip.app.workspace import Workspaces

if TYPE_CHECKING:
    from gradio import Blocks

STYLE = Path(__file__).with_name("style.css")
SECONDS_BEFORE_DELETION = 3600
"""Uploads and exports are deleted after this time."""
MAX_SESSIONS = 100
"""Open pages of which Gradio keeps what was filled in by `load_defaults`: some 100 kB each. The handlers need none."""
SEARCH_ON_CLICK = """element.addEventListener('click', event => {
  const card = event.target.closest('[data-row]');
  if (card) trigger('click', {row: Number(card.dataset.row)});
});"""
INTRODUCTION = (
    "<h1>prolip</h1><p class='pl-explain'>Images and texts are embedded as Gaussians: a mean says what they are, a "
    "covariance how much they leave open. Drop in pictures, type captions, and see what the model is sure of.</p>"
)
EXPLANATIONS = {
    "Compare": "Images against captions: how uncertain each is, and how well they fit, by every measure.",
    "Search": "A text or an image against the database, with what the search knows of its own certainty.",
    "Traverse": "The captions on the way from the one nearest to an image to the most general one.",
    "Collection": "Which items of the database are vague, wrong or there twice; keep the best and export their ids.",
    "Classify": "An image among classes, how far to trust the answer, and templates weighted by example images.",
}
CHOICES = {
    "rank_by": [
        ("CSD", "csd"), ("cosine", "cosine"), ("image uncertainty", "image-uncertainty"),
        ("caption uncertainty", "text-uncertainty"), ("inclusion", "inclusion"),
    ],
    "duplicates": [("by images", "images"), ("by captions", "captions"), ("by either", "both"), ("keep them", "none")],
    "choice": [("kept", "kept"), ("below the cut", "below"), ("duplicates", "duplicates")],
    "format": [("CSV table", "csv"), ("ids, one per line", "ids"), ("DataComp ids (.npy)", "datacomp")],
}  # fmt: skip


def build_page(workspaces: Workspaces, concurrency: int) -> Blocks:
    """Build the page.

    Args:
        workspaces: The models and databases.
        concurrency: Requests that are computed at the same time.

    Returns:
        The page, which is not served yet.
    """
    handlers = Handlers(workspaces)
    titles = [(title, name) for name, title in workspaces.titles.items()]
    page: Blocks
    with gradio.Blocks(
        title="prolip", analytics_enabled=False, delete_cache=(600, SECONDS_BEFORE_DELETION)
    ) as page:
        gradio.HTML(wrap(INTRODUCTION))
        name = gradio.Dropdown(
            titles,
            value=workspaces.first,
            label="Model and collection",
            visible=len(titles) > 1,
            elem_id="workspace",
        )
        state = gradio.HTML(elem_id="state")
        with gradio.Tabs():
            parts = _Parts(handlers, name)
            compared = parts.build_compare()
            query = parts.build_search()
            traversed = parts.build_traverse()
            parts.build_collection()
            classified = parts.build_classify()
        defaults = [compared, query, traversed[0], classified[0], traversed[1], *classified[1:], state]
        for event in (page.load, name.change):
            event(handlers.load_defaults, name, defaults, api_visibility="private").then(
                guarded(handlers.compare),
                [name, parts.images, compared],
                parts.comparison,
                api_visibility="private",
            )
    page.state_session_capacity = MAX_SESSIONS
    page.queue(default_concurrency_limit=concurrency, max_size=100)
    return page


class _Parts:
    """The tabs. Each method adds one, and returns the components that a change of the workspace fills."""

    def __init__(self, handlers: Handlers, name: Any) -> None:
        self._handlers = handlers
        self._name = name
        self.images: Any = None
        self.comparison: Any = None

    def build_compare(self) -> Any:
        """Images and captions in, everything about them out."""
        with _tab("Compare"):
            with gradio.Row():
                self.images = make_uploads("Images", "compare-images")
                captions = gradio.Textbox(
                    label="Captions, one per line", lines=7, max_lines=12, elem_id="compare-captions"
                )
            button = gradio.Button("Compare", variant="primary", elem_id="compare-go")
            self.comparison = gradio.HTML(elem_id="compare-result", min_height=120)
            _on(
                button.click,
                guarded(self._handlers.compare),
                [self._name, self.images, captions],
                self.comparison,
            )
        return captions

    def build_search(self) -> Any:
        """A query and its limits in, a grid out; a click on a card searches from it."""
        with _tab("Search"):
            with gradio.Row():
                with gradio.Column(scale=3):
                    text = gradio.Textbox(label="Text", elem_id="search-text", lines=1, max_lines=3)
                    with gradio.Row():
                        modality = gradio.Radio(
                            [("images", "image"), ("texts", "text")], value="image", label="Search among"
                        )
                        count = gradio.Slider(1, search.MAX_RESULTS, 12, step=1, label="Results")
                image = make_upload("Or an image", "search-image")
            with gradio.Row():
                only = gradio.Checkbox(False, label="Only what matches", elem_id="search-only")
                matching = gradio.Slider(1, 99, 10, step=1, label="with a probability of at least, in %")
                uncertain = gradio.Slider(
                    1, 100, 100, step=1, label="Leave out items more uncertain than, in % of all"
                )
            button = gradio.Button("Search", variant="primary", elem_id="search-go")
            found = gradio.HTML(elem_id="search-result", min_height=120, js_on_load=SEARCH_ON_CLICK)
            options = [modality, count, only, matching, uncertain]
            for event in (button.click, text.submit):
                _on(event, guarded(self._handlers.search), [self._name, text, image, *options], found)

            _on(found.click, self._handlers.on_click, [self._name, *options], found)
        return text

    def build_traverse(self) -> tuple[Any, Any]:
        """An image in, two paths of captions out."""
        with _tab("Traverse"):
            with gradio.Row():
                image = make_upload("Image", "traverse-image")
                with gradio.Column():
                    sample = _pick_sample()
                    captions = gradio.Textbox(
                        label="Captions, one per line; none: those of the database", lines=5, max_lines=9,
                        elem_id="traverse-captions",
                    )  # fmt: skip
            button = gradio.Button("Traverse", variant="primary", elem_id="traverse-go")
            paths = gradio.HTML(elem_id="traverse-result", min_height=120)
            _on(button.click, guarded(self._handlers.traverse), [self._name, image, sample, captions], paths)
        return sample, captions

    def build_collection(self) -> None:
        """Which pairs to keep in, distributions and lists out, and a file of ids."""
        with _tab("Collection"):
            with gradio.Row():
                rank_by = gradio.Dropdown(CHOICES["rank_by"], value="cosine", label="Rank pairs by")
                keep = gradio.Slider(1, 100, 90, step=1, label="Keep the best, in %")
                duplicates = gradio.Dropdown(
                    CHOICES["duplicates"], value="images", label="Drop near-duplicates"
                )
            options = [rank_by, keep, duplicates]
            button = gradio.Button("Inspect", variant="primary", elem_id="collection-go")
            with gradio.Accordion("Export", open=False, elem_id="export"):
                with gradio.Row():
                    choice = gradio.Dropdown(CHOICES["choice"], value="kept", label="Samples")
                    kind = gradio.Dropdown(CHOICES["format"], value="csv", label="Format")
                export = gradio.Button("Export", elem_id="export-go")
                file = gradio.File(label="File", interactive=False, elem_id="export-file")
                problem = gradio.HTML(elem_id="export-problem")
            shown = gradio.HTML(elem_id="collection-result", min_height=120)
            _on(button.click, guarded(self._handlers.inspect), [self._name, *options], shown)
            _on(export.click, self._handlers.export, [self._name, *options, choice, kind], [file, problem])

    def build_classify(self) -> tuple[Any, Any, Any]:
        """An image and classes in, the classes and their trust out; with examples, learned weights."""
        with _tab("Classify"):
            with gradio.Row():
                image = make_upload("Image", "classify-image")
                with gradio.Column():
                    sample = _pick_sample()
                    names = gradio.Textbox(
                        label="Class names, one per line", lines=5, max_lines=9, elem_id="class-names"
                    )
                templates = gradio.Textbox(
                    label="Templates, one per line; {c} is the class name",
                    lines=8,
                    max_lines=12,
                    elem_id="templates",
                )
            with gradio.Accordion(
                "Learn weights of templates from example images (BPRW)", open=False, elem_id="learn"
            ):
                builtin = gradio.Checkbox(
                    False, label="Use labeled examples that come with the collection", elem_id="use-examples"
                )
                with gradio.Row():
                    examples = make_uploads("Or your own examples", "example-images")
                    labels = gradio.Textbox(
                        label="Their labels, one per line in the order of the images; none: they have none",
                        lines=6, max_lines=9, elem_id="example-labels",
                    )  # fmt: skip
            button = gradio.Button("Classify", variant="primary", elem_id="classify-go")
            shown = gradio.HTML(elem_id="classify-result", min_height=120)
            _on(
                button.click, guarded(self._handlers.classify),
                [self._name, image, sample, names, templates, examples, labels, builtin], shown,
            )  # fmt: skip
        return sample, names, templates


def _tab(title: str) -> Any:
    """A tab that begins with what it is for."""
    tab = gradio.Tab(title)
    with tab:
        gradio.HTML(wrap(f'<p class="pl-explain">{EXPLANATIONS[title]}</p>'))
    return tab


def _on(event: Any, handler: Callable[..., Any], inputs: Sequence[Any], outputs: Any) -> None:
    """Call a handler on an event; the HTTP API of Gradio doesn't list it, since it answers with HTML."""
    event(handler, list(inputs), outputs, api_visibility="private", concurrency_id="compute")


def _pick_sample() -> Any:
    """A choice of an image of the collection."""
    # custom values, because Gradio has forgotten the choices of the oldest of more than MAX_SESSIONS pages
    return gradio.Dropdown([], label="Or an image of the collection", type="value", allow_custom_value=True)
