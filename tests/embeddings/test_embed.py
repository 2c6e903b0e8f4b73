"""Data into a folder of embeddings: as the model gives by itself; stopped, killed, resumed, refused."""

import csv
import io
import os
import shlex
import signal
import subprocess
import sys
import time
from uuid import uuid4

import pytest
import torch
from PIL import Image

from prolip.data.open import open_data
from prolip.data.sample import SampleError
from prolip.data.sample_errors import TooManyBadSamplesError
from prolip.embeddings import worker
from prolip.embeddings.dataset import EmbeddingDataset, get_part_name
from prolip.embeddings.embed import _report_errors, embed
from prolip.embeddings.schema import read_gaussians, read_mean_traces
from prolip.model.create import create
from prolip.model.prolip import ProLIP
from prolip.storage import open_storage
from tests.data.tar_files import tar_bytes
from tests.embeddings.shards import caption, files, make_png, write_shards


def run(model, data, out, **options):
    return embed(model, data, out, **{"part_size": 4, "batch_size": 3, "progress": False, **options})


def bytes_of(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_embed_equals_model_embed_images_and_texts(nano, tmp_path):
    stored = run(nano, write_shards(tmp_path / "s", [5, 4]), tmp_path / "out")
    images = nano.embed_images([Image.open(io.BytesIO(make_png(n))) for n in range(9)])
    texts = nano.embed_texts([caption(n).strip() for n in range(9)])
    for modality, alone in (("image", images), ("text", texts)):
        blocks = [read_gaussians(block) for _, block in stored.iter_parts(modality)]
        torch.testing.assert_close(torch.cat([z.mean for z in blocks]), alone.mean, rtol=0, atol=1e-6)
        torch.testing.assert_close(torch.cat([z.log_var for z in blocks]), alone.log_var, rtol=0, atol=1e-5)
    assert stored.header.columns == {"similarity": "double", "uid": "string", "width": "int64"}
    assert stored.read_part(1)["width"].to_pylist() == [4, 5, 6, 7] * 2
    assert stored.read_part(1)["url"][0].as_py() == "https://example.org/4"
    assert stored.header.scale == pytest.approx(nano.temperature.scale.item())


def test_embed_decodes_large_jpegs_at_a_fraction_of_their_size_if_fast(nano, tmp_path):
    size = nano.config.image.preprocessing.size
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(256, (5 * size, 4 * size, 3), dtype=torch.uint8, generator=generator)
    (tmp_path / "images").mkdir()
    large, small = (tmp_path / "images" / name for name in ("a.jpg", "b.jpg"))
    Image.fromarray(noise.numpy()).save(large)
    Image.fromarray(noise[: 3 * size].numpy()).save(small)  # half of it is too small
    options = {"modality": "image", "max_bad_fraction": 0.0}
    stored = {
        decode: run(nano, tmp_path / "images", tmp_path / decode, decode=decode, **options)
        for decode in ("exact", "fast")
    }
    means = {}
    for decode, dataset in stored.items():
        assert EmbeddingDataset.open(tmp_path / decode).header.decode == decode
        ((_, rows),) = dataset.iter_parts("image")
        means[decode] = read_gaussians(rows).mean
    with Image.open(large) as image:
        image.draft(None, (2 * size, 2 * size))
        assert image.size == (2 * size, 2.5 * size)
        alone = nano.embed_images([image.convert("RGB"), small])
    torch.testing.assert_close(means["fast"], alone.mean, rtol=0, atol=1e-6)
    assert not torch.equal(means["fast"][0], means["exact"][0])
    assert torch.equal(means["fast"][1], means["exact"][1])
    with pytest.raises(ValueError, match="decode exact, not fast"):
        run(nano, tmp_path / "images", tmp_path / "exact", decode="fast", **options)


@pytest.mark.parametrize("variances", ["full", "trace"])
def test_embeddings_of_a_likelihood_model_have_its_match_probabilities(likelihood_nano, tmp_path, variances):
    """From what is stored alone: the header has scale, bias and exponent."""
    stored = run(
        likelihood_nano, write_shards(tmp_path / "s", [5]), tmp_path / "out", variances=variances, part_size=9
    )
    assert (stored.header.gamma, stored.header.has_uncertainty) == (4.0, True)
    images = likelihood_nano.embed_images([Image.open(io.BytesIO(make_png(n))) for n in range(5)])
    texts = likelihood_nano.embed_texts([caption(n).strip() for n in range(5)])
    ((_, image_rows),) = stored.iter_parts("image")
    ((_, text_rows),) = stored.iter_parts("text")
    logits = stored.header.logit_parameters.logits_matrix(
        read_mean_traces(image_rows), read_mean_traces(text_rows)
    )
    expected = likelihood_nano.match_probability_matrix(images, texts)
    torch.testing.assert_close(logits.sigmoid(), expected, rtol=1e-3, atol=1e-6)


def test_embed_of_stream_equals_embed_of_shards(nano, tmp_path):
    """A part for each shard, numbers from 0 in each; else the same rows."""
    write_shards(tmp_path / "s", [5, 3])
    disk = run(nano, str(tmp_path / "s"), tmp_path / "disk", part_size=100, batch_size=5)
    piped = run(
        nano, f"pipe:cat {shlex.quote(str(tmp_path))}/s/0000{{0,1}}.tar", tmp_path / "piped", batch_size=5
    )
    assert piped.header.parts == 2
    for modality in ("image", "text"):
        names = [name for name in disk.columns if name != "index"]
        whole = next(disk.iter_parts(modality, names))[1]
        parts = [block for _, block in piped.iter_parts(modality, names)]
        assert [value for block in parts for value in block["id"].to_pylist()] == whole["id"].to_pylist()
        both = torch.cat([read_mean_traces(block).mean for block in parts])
        torch.testing.assert_close(both, read_mean_traces(whole).mean, rtol=0, atol=1e-6)


def test_embed_stores_no_passwords(nano, tmp_path):
    write_shards(tmp_path / "s", [2])
    stored = run(nano, f"pipe:TOKEN=geheim cat {shlex.quote(str(tmp_path))}/s/00000.tar", tmp_path / "out")
    assert len(stored) == 4
    assert all(b"geheim" not in content for content in bytes_of(tmp_path / "out").values())


def test_bad_image_is_a_row_of_errors_csv(nano, tmp_path):
    stored = run(nano, write_shards(tmp_path / "s", [9], bad={4}), tmp_path / "out", max_bad_fraction=0.2)
    assert [n for _, b in stored.iter_parts("image", ["index"]) for n in b["index"].to_pylist()] == [
        0, 1, 2, 3, 5, 6, 7, 8
    ]  # fmt: skip
    with open(stored.folder / "errors.csv", encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["part"], row["index"], row["reason"]) == ("1", "4", "unreadable image")
    assert "00000.tar: 000004" in row["location"]


def test_errors_csv_holds_no_formulas(nano, tmp_path, monkeypatch):
    stored = run(nano, write_shards(tmp_path / "s", [2]), tmp_path / "out")
    error = SampleError("unreadable image", "=cmd|x", "@SUM(1)")
    monkeypatch.setattr(EmbeddingDataset, "iter_errors", lambda self: iter([(0, 1, error)]))
    _report_errors(stored)
    with open(tmp_path / "out" / "errors.csv", encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["location"], row["detail"]) == ("'=cmd|x", "'@SUM(1)")


def test_too_many_bad_samples_end_the_run(nano, tmp_path):
    with pytest.raises(TooManyBadSamplesError, match="2 of 9 samples"):
        run(nano, write_shards(tmp_path / "s", [9], bad={4, 5}), tmp_path / "out", max_bad_fraction=0.2)
    assert len((tmp_path / "out" / "errors.csv").read_text().splitlines()) == 3
    assert len(EmbeddingDataset.open(tmp_path / "out")) == 14


def test_bad_samples_of_an_earlier_run_count(nano, tmp_path):
    data = write_shards(tmp_path / "s", [9], bad={4, 5})
    run(nano, data, tmp_path / "out", max_bad_fraction=0.5)
    with pytest.raises(TooManyBadSamplesError):
        run(nano, data, tmp_path / "out", max_bad_fraction=0.2)


def test_resumed_run_writes_the_same_bytes(nano, tmp_path, monkeypatch):
    data = write_shards(tmp_path / "s", [9, 8])
    whole = run(nano, data, tmp_path / "whole")
    write, written = worker.write_part, []

    def fail_at_two(folder, number, rows):
        if number == 2:
            raise OSError("no space left on device")
        written.append(number)
        return write(folder, number, rows)

    with monkeypatch.context() as patch:
        patch.setattr(worker, "write_part", fail_at_two)
        with pytest.raises(OSError, match="no space left"):
            run(nano, data, tmp_path / "out")
    assert written == [0, 1]
    monkeypatch.setattr(worker, "write_part", lambda f, n, r: (written.append(n), write(f, n, r))[1])
    run(nano, data, tmp_path / "out")
    assert written == [0, 1, 2, 3, 4]
    assert bytes_of(tmp_path / "out") == bytes_of(whole.folder)
    run(nano, data, tmp_path / "out")
    assert written == [0, 1, 2, 3, 4]


def test_removed_part_is_written_again(nano, tmp_path):
    stored = run(nano, write_shards(tmp_path / "s", [9]), tmp_path / "out")
    before = bytes_of(stored.folder)
    (stored.folder / get_part_name(1)).unlink()
    run(nano, str(tmp_path / "s"), tmp_path / "out")
    assert bytes_of(stored.folder) == before


def test_embed_rejects_another_model(nano, tokenizer, tmp_path):
    data = write_shards(tmp_path / "s", [4])
    run(nano, data, tmp_path / "out")
    before = bytes_of(tmp_path / "out")
    with pytest.raises(ValueError, match="holds embeddings of another model"):
        run(create("nano", tokenizer, seed=1).eval(), data, tmp_path / "out")
    assert bytes_of(tmp_path / "out") == before


def test_embed_rejects_other_data_and_options(nano, tmp_path):
    data = write_shards(tmp_path / "s", [4])
    run(nano, data, tmp_path / "out")
    with pytest.raises(ValueError, match="is other data, or has changed"):
        run(nano, write_shards(tmp_path / "t", [5]), tmp_path / "out")
    with pytest.raises(ValueError, match="precision float32, not float16"):
        run(nano, data, tmp_path / "out", precision="float16")
    write_shards(tmp_path / "s", [5])
    with pytest.raises(ValueError, match="is other data, or has changed"):
        run(nano, data, tmp_path / "out")


@pytest.mark.parametrize("change", [lambda s: s.replace(b"a thing", b"a thong"), None])
def test_embed_rejects_a_rewritten_shard(nano, tmp_path, change):
    """Of the same name and size."""
    data = write_shards(tmp_path / "s", [9])
    run(nano, data, tmp_path / "out")
    shard = tmp_path / "s" / "00000.tar"
    if change is None:
        os.utime(shard, ns=(1, 1))
    else:
        shard.write_bytes(change(shard.read_bytes()))
    with pytest.raises(ValueError, match="is other data, or has changed"):
        run(nano, data, tmp_path / "out")


def test_embed_rejects_other_images_of_the_same_names(nano, tmp_path):
    for folder, shade in (("a", 10), ("b", 200)):
        (tmp_path / folder).mkdir()
        for number in range(3):
            Image.new("RGB", (32, 32), (shade, number, 0)).save(tmp_path / folder / f"{number}.png")
            (tmp_path / folder / f"{number}.txt").write_text("a thing")
    run(nano, tmp_path / "a", tmp_path / "out")
    with pytest.raises(ValueError, match="is other data, or has changed"):
        run(nano, tmp_path / "b", tmp_path / "out")
    (tmp_path / "a").rename(tmp_path / "moved")
    run(nano, tmp_path / "moved", tmp_path / "out")
    (tmp_path / "moved" / "1.txt").write_text("a thong")
    with pytest.raises(ValueError, match="is other data, or has changed"):
        run(nano, tmp_path / "moved", tmp_path / "out")


def test_damaged_part_is_computed_again(nano, tmp_path, caplog):
    data = write_shards(tmp_path / "s", [9])
    run(nano, data, tmp_path / "out")
    before = bytes_of(tmp_path / "out")
    (tmp_path / "out" / get_part_name(1)).write_bytes(before[get_part_name(1)][:200])
    run(nano, data, tmp_path / "out")
    assert bytes_of(tmp_path / "out") == before
    assert "computed again" in caplog.text


def test_embed_rejects_parts_without_header(nano, tmp_path):
    data = write_shards(tmp_path / "s", [4])
    run(nano, data, tmp_path / "out")
    (tmp_path / "out" / "prolip.json").unlink()
    with pytest.raises(ValueError, match=r"holds parts of embeddings, but no prolip\.json"):
        run(nano, data, tmp_path / "out")


def test_lone_surrogates_and_bad_labels_do_not_end_the_run(nano, tmp_path):
    """One bad field among the first samples, one among the others."""
    odd = {0: ("cls", b"none"), 2: ("json", b'{"url": "http://\\ud800", "a\\udc80": 1}'), 7: ("cls", b"none")}
    members = []
    for name, content in files(range(9)):
        number, ending = int(name[:6]), name[7:]
        if ending == "json" and number in odd:
            name, content = f"{number:06d}.{odd[number][0]}", odd[number][1]
        members.append((name, content))
    (tmp_path / "a.tar").write_bytes(tar_bytes(members))
    stored = run(nano, tmp_path / "a.tar", tmp_path / "out", max_bad_fraction=0.5)
    assert [number for _, number, _ in stored.iter_errors()] == [0, 7]
    assert stored.read_part(0)["url"].to_pylist()[1] == "http://\\ud800"


def test_columns_of_a_stream_come_from_several_shards(nano, tmp_path):
    """The first shard has no good sample, the second no uid."""
    write_shards(tmp_path / "s", [3, 3, 3], bad={0, 1, 2})
    second = [(name, content) for name, content in files(range(3, 6)) if not name.endswith("json")]
    (tmp_path / "s" / "00001.tar").write_bytes(tar_bytes(second))
    data = f"pipe:cat {shlex.quote(str(tmp_path))}/s/0000{{0..2}}.tar"
    stored = run(nano, data, tmp_path / "out", max_bad_fraction=0.5)
    assert stored.header.columns == {"similarity": "double", "uid": "string", "width": "int64"}
    assert stored.read_part(1)["uid"].to_pylist() == [None] * 6


def test_broken_shard_is_reported_and_tried_again(nano, tmp_path):
    write_shards(tmp_path / "s", [5, 4])
    shard = tmp_path / "s" / "00001.tar"
    good = shard.read_bytes()
    shard.write_bytes(good[: len(good) // 2 + 100])
    data = f"pipe:cat {shlex.quote(str(tmp_path))}/s/0000{{0,1}}.tar"
    run(nano, data, tmp_path / "out", max_bad_fraction=0.5)
    ((part, _, bad),) = EmbeddingDataset.open(tmp_path / "out").iter_errors()
    assert (part, bad.reason) == (1, "broken shard")
    shard.write_bytes(good)
    again = run(nano, data, tmp_path / "out", max_bad_fraction=0)
    assert list(again.iter_errors()) == []
    assert len(again) == 18
    assert (tmp_path / "out" / "errors.csv").read_text().splitlines() == ["part,index,reason,location,detail"]


def test_embed_texts_only(nano, tmp_path):
    (tmp_path / "captions.txt").write_text("a cat\na dog\na red circle\n")
    stored = run(nano, tmp_path / "captions.txt", tmp_path / "out", modality="text")
    ((_, block),) = stored.iter_parts()
    assert block["caption"].to_pylist() == ["a cat", "a dog", "a red circle"]
    alone = nano.embed_texts(["a cat", "a dog", "a red circle"])
    torch.testing.assert_close(read_gaussians(block).mean, alone.mean, rtol=0, atol=1e-6)


def test_embed_texts_only_reads_no_images(nano, tmp_path):
    stored = run(
        nano,
        write_shards(tmp_path / "s", [4], bad={1}),
        tmp_path / "out",
        modality="text",
        max_bad_fraction=0,
    )
    assert len(stored) == 4


def test_model_without_uncertainty_stores_traces(nano, tmp_path, generator):
    model = ProLIP(nano.config.with_uncertainty("none"), nano.tokenizer).init_weights(generator).eval()
    stored = run(model, write_shards(tmp_path / "s", [4]), tmp_path / "out")
    assert stored.header.variances == "trace"
    assert stored.read_part(0)["uncertainty"].to_pylist() == [0.0] * 8


def test_embed_takes_a_source(nano, tmp_path):
    source = open_data("scenes:simple,length=5,size=32")
    assert len(run(nano, source, tmp_path / "a", modality="image")) == 5
    with pytest.raises(ValueError, match="With engine ray, model and data must be names"):
        run(nano, source, tmp_path / "b", engine="ray")


def test_parts_on_another_disk_are_reported(nano, tmp_path, monkeypatch):
    """As on a cluster whose machines share no disk."""
    monkeypatch.setattr(worker, "write_part", lambda folder, number, rows: None)
    with pytest.raises(OSError, match="2 parts were written, but are not visible"):
        run(nano, "scenes:simple,length=8,size=32", tmp_path / "out")


def test_first_error_is_raised(nano, tmp_path, monkeypatch):
    """Not that of another part, which is damaged too."""
    data = write_shards(tmp_path / "s", [12])
    run(nano, data, tmp_path / "out")
    (tmp_path / "out" / get_part_name(0)).unlink()
    damaged = (tmp_path / "out" / get_part_name(2)).read_bytes()[:200]

    def fails(storage, index, table):
        (tmp_path / "out" / get_part_name(2)).write_bytes(damaged)
        raise OSError("no space left on device")

    monkeypatch.setattr(worker, "write_part", fails)
    with pytest.raises(OSError, match="no space left"):
        run(nano, data, tmp_path / "out")


def test_image_extension_is_not_made_a_path(nano, tmp_path, monkeypatch):
    write_shards(tmp_path / "s", [3])
    (tmp_path / "png").mkdir()
    monkeypatch.chdir(tmp_path)
    stored = run(nano, "s", "out", image="png")
    assert stored.header.image == "png"
    assert len(stored.open_source()) == 3


KILLED = """
import sys, time
from prolip.embeddings import worker
from prolip.embeddings.embed import _report_errors, embed
write = worker.write_part
def slow(folder, number, rows):
    write(folder, number, rows)
    print(number, flush=True)
    time.sleep(0.2)
worker.write_part = slow
embed(sys.argv[1], sys.argv[2], sys.argv[3], part_size=4, batch_size=3, progress=False)
"""


@pytest.mark.slow
def test_killed_run_loses_and_repeats_nothing(nano, tmp_path):
    model, data = nano.save_pretrained(tmp_path / "model"), write_shards(tmp_path / "s", [30])
    whole = run(str(model), data, tmp_path / "whole")
    command = [sys.executable, "-c", KILLED, str(model), data, str(tmp_path / "out")]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    while process.stdout.readline().strip() != "2":
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    there = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("part-*")}
    assert 3 <= len(there) < 8
    time.sleep(0.01)
    run(str(model), data, tmp_path / "out")
    assert all((tmp_path / "out" / name).stat().st_mtime_ns == stamp for name, stamp in there.items())
    parts = [number for number, _ in EmbeddingDataset.open(tmp_path / "out").iter_parts()]
    assert parts == list(range(8))
    for number in parts:
        ours, theirs = (EmbeddingDataset.open(f).read_part(number) for f in (tmp_path / "out", whole.folder))
        assert ours.drop_columns(["mean", "log_var", "uncertainty"]).equals(
            theirs.drop_columns(["mean", "log_var", "uncertainty"])
        )
        torch.testing.assert_close(read_gaussians(ours).mean, read_gaussians(theirs).mean, rtol=0, atol=1e-6)


def test_embed_to_a_uri(nano, tmp_path):
    """To an object store: the same parts as in a folder; it goes on, and refuses, alike."""
    data = write_shards(tmp_path / "s", [9], bad={4})
    there = f"memory://{uuid4()}/there/"
    stored = open_storage(there)
    folder = run(nano, data, tmp_path / "here", max_bad_fraction=0.2)
    run(nano, data, there, max_bad_fraction=0.2)
    assert {name: stored.read(name) for name in stored.list_names()} == bytes_of(tmp_path / "here")
    stored.remove(get_part_name(1))
    again = run(nano, data, there, max_bad_fraction=0.2)
    assert {name: stored.read(name) for name in stored.list_names()} == bytes_of(tmp_path / "here")
    assert EmbeddingDataset.open(there).read_part(1).equals(folder.read_part(1))
    with pytest.raises(ValueError, match="precision float32, not float16"):
        run(nano, data, there, precision="float16")
    with pytest.raises(ValueError, match="not a local folder"):
        print(again.folder)
