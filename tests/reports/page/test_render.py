"""Values into HTML."""

from prolip.reports.page.components import Cell, Facts, Gallery, Header, Picture, Section
from prolip.reports.page.render import by_kind, render
from tests.reports.page.html import Page

EVIL = '<img src=x onerror=alert(1)> & "quoted"'


def gallery():
    picture = Picture(uri="data:image/png;base64,AAAA", alt=EVIL)
    return Gallery(title=EVIL, says=EVIL, cells=(Cell(picture=picture, captions=(EVIL,), notes=(EVIL,)),))


def test_whatever_is_told_is_escaped():
    header = Header(title=EVIL, line=EVIL, facts=((EVIL, EVIL),), tiles=(), notes=(EVIL,))
    section = Section(id="one", title=EVIL, intro=EVIL, blocks=[gallery(), Facts(rows=((EVIL, EVIL),))])
    page = Page(render(header, [section]))
    assert page.all("img", "src") == ["data:image/png;base64,AAAA"]
    assert page.all("img", "alt") == [EVIL]
    assert page.text.count(EVIL) >= 12
    assert not page.open


def test_neighbours_of_one_kind_stand_together():
    facts = Facts(rows=())
    runs = by_kind([gallery(), gallery(), facts, gallery()])
    assert [(kind, len(blocks)) for kind, blocks in runs] == [("gallery", 2), ("facts", 1), ("gallery", 1)]
