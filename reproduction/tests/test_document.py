import pytest

from reproduction.document import BEGIN, END, read_generated, write_generated


def test_generated_text_round_trip(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nthe end\n")
    for content in ("| a |\n|---|\n| ± 1 |\n", "shorter\n"):
        write_generated(page, content)
        assert read_generated(page) == content
        assert page.read_text() == f"# Title\n\n{BEGIN}\n\n{content}\n{END}\n\nthe end\n"


@pytest.mark.parametrize("text", ["nothing", BEGIN, END, f"{END} {BEGIN}"])
def test_write_generated_rejects_page_without_markers(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(ValueError, match=r"page.md has no markers"):
        write_generated(page, "x")
    assert page.read_text() == text
