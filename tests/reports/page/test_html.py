"""Rendering of components and images into HTML."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from prolip.reports.page.components import (
    DefinitionList,
    Gallery,
    GalleryItem,
    PageHeader,
    PageImage,
    PageSection,
)
from prolip.reports.page.html import MAX_CHARACTERS, MAX_IMAGE_SIZE, embed_image, group_by_kind, render_page
from tests.reports.page.parsed_page import ParsedPage

EVIL = '<img src=x onerror=alert(1)> & "quoted"'


def gallery():
    image = PageImage(uri="data:image/png;base64,AAAA", alt=EVIL)
    return Gallery(
        title=EVIL, description=EVIL, items=(GalleryItem(image=image, captions=(EVIL,), notes=(EVIL,)),)
    )


def test_long_captions_are_cut():
    image = PageImage(uri="data:image/png;base64,AAAA", alt="b" * 100_000)
    block = Gallery(title="x", items=(GalleryItem(image=image, captions=("a" * 100_000,)),))
    header = PageHeader(title="x", subtitle="x", metadata=(), tiles=())
    html = render_page(header, [PageSection(id="one", title="x", blocks=[block])])
    assert "a" * (MAX_CHARACTERS - 1) + "…" in html
    assert "a" * MAX_CHARACTERS not in html
    assert "b" * MAX_CHARACTERS not in html


def test_render_page_escapes_text():
    header = PageHeader(title=EVIL, subtitle=EVIL, metadata=((EVIL, EVIL),), tiles=(), notes=(EVIL,))
    section = PageSection(
        id="one", title=EVIL, intro=EVIL, blocks=[gallery(), DefinitionList(rows=((EVIL, EVIL),))]
    )
    page = ParsedPage(render_page(header, [section]))
    assert page.all("img", "src") == ["data:image/png;base64,AAAA"]
    assert page.all("img", "alt") == [EVIL]
    assert page.text.count(EVIL) >= 12
    assert not page.open


def test_group_by_kind_groups_adjacent_blocks():
    definitions = DefinitionList(rows=())
    runs = group_by_kind([gallery(), gallery(), definitions, gallery()])
    assert [(kind, len(blocks)) for kind, blocks in runs] == [
        ("gallery", 2),
        ("definitions", 1),
        ("gallery", 1),
    ]


def decode(image):
    return Image.open(io.BytesIO(base64.b64decode(image.uri.partition(",")[2])))


def test_embed_image_is_lossless_for_small_images():
    noise = np.random.default_rng(0).integers(0, 256, (48, 32, 3), dtype=np.uint8)
    made = embed_image(Image.fromarray(noise), "noise")
    assert made.is_pixelated
    assert made.uri.startswith("data:image/png;base64,")
    assert (np.asarray(decode(made)) == noise).all()


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L"])
def test_embed_image_shrinks_large_images(mode):
    image = Image.new(mode, (1000, 500))
    made = embed_image(image, "large")
    assert not made.is_pixelated
    assert decode(made).size == (MAX_IMAGE_SIZE, MAX_IMAGE_SIZE // 2)
    assert image.size == (1000, 500)  # the caller's own is not touched
