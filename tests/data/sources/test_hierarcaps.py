"""HierarCaps' table: as its authors publish it, as scenes write it, and with all that may be wrong in it."""

import pytest
import torch
from PIL import Image

from prolip.data.sources.hierarcaps import read_hierarcaps

PUBLISHED = """id,captions,image_url
0,"table => table with plates => table with three plates, with man => A table",http://a.org/val/COCO_1.jpg
1,bird => blue bird => blue bird sitting => A blue bird,http://a.org/val/COCO_2.jpg?size=3
2,bird => bird  => bird perched => A bird,http://a.org/val/COCO_1.jpg
"""


def table(tmp_path, text, *pictures):
    (tmp_path / "imgs").mkdir(exist_ok=True)
    for name in pictures:
        Image.new("RGB", (2, 2)).save(tmp_path / "imgs" / name)
    path = tmp_path / "test.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_hierarcaps_reads_the_published_table_with_an_image_folder(tmp_path):
    path = table(tmp_path, PUBLISHED, "COCO_1.jpg", "COCO_2.jpg")
    data = read_hierarcaps(path, tmp_path / "imgs")
    texts = [[data.captions[i] for i in chain] for chain in data.chains]
    assert texts[0] == ["table", "table with plates", "table with three plates, with man", "A table"]
    assert texts[2] == ["bird", "bird", "bird perched", "A bird"]
    assert len(set(data.captions)) == len(data.captions) == 10, "each text once"
    assert [path.name for path in data.images] == ["COCO_1.jpg", "COCO_2.jpg"], "each picture once"
    assert data.image_index.tolist() == [0, 1, 0]
    assert data.missing == ()
    assert data.log_ambiguity is None


def test_read_hierarcaps_lists_missing_images(tmp_path):
    path = table(tmp_path, PUBLISHED, "COCO_2.jpg")
    data = read_hierarcaps(path, tmp_path / "imgs")
    assert data.image_index.tolist() == [-1, 0, -1]
    assert data.missing == ("http://a.org/val/COCO_1.jpg",) * 2
    texts_only = read_hierarcaps(path)
    assert (texts_only.images, texts_only.image_index.tolist()) == ((), [-1, -1, -1])


def test_read_hierarcaps_refuses_a_folder_without_its_images(tmp_path):
    path = table(tmp_path, PUBLISHED)
    with pytest.raises(FileNotFoundError, match="none of the 3 images"):
        read_hierarcaps(path, tmp_path / "imgs")
    with pytest.raises(FileNotFoundError, match="no such folder"):
        read_hierarcaps(path, tmp_path / "nowhere")


def test_paths_beside_the_table_and_known_truths(tmp_path):
    text = "id,captions,url,log_ambiguity\n7,a => b,imgs/x.png,0.0 -1.5\n8,a => c,y.png,-0.25 -3\n"
    path = table(tmp_path, text, "x.png", "y.png")
    data = read_hierarcaps(path)
    assert data.image_index.tolist() == [0, -1]
    assert read_hierarcaps(path, tmp_path / "imgs").image_index.tolist() == [0, 1]
    assert torch.equal(data.log_ambiguity, torch.tensor([[0.0, -1.5], [-0.25, -3.0]], dtype=torch.float64))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,captions,url\n0,a => b,x\n1,a => b => c,x\n", "row 2 has 3 captions.*row 1 has 2"),
        ("id,captions,url\n0,a =>  => b,x\n", "row 1: caption 2 of .* is empty"),
        ("id,text,url\n0,a,x\n", "must have the columns captions and url or image_url"),
        ("id,captions,url\n", "has no rows"),
        ("id,captions,url\n0,a => b\n", "row 1 doesn't have 3 cells"),
        ("id,captions,url\n0,a, b => c,x\n", "row 1 doesn't have 3 cells"),
        ('id,captions,url\n0,"a => b,x\n', "can't be read as a CSV"),
        (
            "id,captions,url,log_ambiguity\n0,a => b,x,0 -1 -2\n",
            "row 1 has 3 numbers in log_ambiguity for 2 captions",
        ),
        ("id,captions,url,log_ambiguity\n0,a => b,x,0 much\n", "row 1: log_ambiguity: .*much"),
    ],
)
def test_invalid_rows_raise_with_their_number(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_hierarcaps(table(tmp_path, text))


def test_a_missing_table(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_hierarcaps(tmp_path / "test.csv")


def test_a_path_below_the_folder_comes_before_its_name_alone(tmp_path):
    path = table(tmp_path, "id,captions,url\n1,a => b,sub/x.png\n", "x.png")
    assert read_hierarcaps(path, tmp_path / "imgs").images == (tmp_path / "imgs" / "x.png",)
    (tmp_path / "imgs" / "sub").mkdir()
    Image.new("RGB", (2, 2)).save(tmp_path / "imgs" / "sub" / "x.png")
    assert read_hierarcaps(path, tmp_path / "imgs").images == (tmp_path / "imgs" / "sub" / "x.png",)
