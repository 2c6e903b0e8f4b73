"""Values into HTML."""

from prolip.reports.page.render import by_kind, render

from prolip.reports.page.components import (
    DefinitionList,
    Gallery,
    GalleryItem,
    PageHeader,
    PageImage,
    PageSection,
)
from tests.reports.page.html import ParsedPage

EVIL = '<img src=x onerror=alert(1)> & "quoted"'


def gallery():
    picture = PageImage(uri="data:image/png;base64,AAAA", alt=EVIL)
    return Gallery(
        title=EVIL, description=EVIL, cells=(GalleryItem(picture=picture, captions=(EVIL,), notes=(EVIL,)),)
    )


def test_whatever_is_told_is_escaped():
    header = PageHeader(title=EVIL, line=EVIL, facts=((EVIL, EVIL),), tiles=(), notes=(EVIL,))
    section = PageSection(
        id="one", title=EVIL, intro=EVIL, blocks=[gallery(), DefinitionList(rows=((EVIL, EVIL),))]
    )
    page = ParsedPage(render(header, [section]))
    assert page.all("img", "src") == ["data:image/png;base64,AAAA"]
    assert page.all("img", "alt") == [EVIL]
    assert page.text.count(EVIL) >= 12
    assert not page.open


def test_neighbors_of_one_kind_stand_together():
    facts = DefinitionList(rows=())
    runs = by_kind([gallery(), gallery(), facts, gallery()])
    assert [(kind, len(blocks)) for kind, blocks in runs] == [("gallery", 2), ("facts", 1), ("gallery", 1)]
