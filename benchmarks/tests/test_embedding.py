"""The benchmark of embedding: the model alone gives what `prolip embed` stores."""

import pytest
import torch

from benchmarks import embedding
from benchmarks.text_length import make_model
from prolip.embeddings import read_gaussians
from prolip.embeddings.embed import embed

pytestmark = pytest.mark.slow


def test_the_model_alone_gives_what_embed_stores(tmp_path):
    model = make_model("nano")
    source = embedding.write_shard(tmp_path, 5)
    stored = embed(model, source, tmp_path / "out", batch_size=2, text_batch_size=2, progress=False)
    alone = embedding.encode_prepared(model, *embedding.prepare_all(model, source), 2)
    for modality, z in zip(("image", "text"), alone, strict=True):
        ((_, rows),) = stored.iter_parts(modality)
        torch.testing.assert_close(read_gaussians(rows).mean, z.mean, rtol=0, atol=1e-6)


def test_embed_command(run_benchmark, capsys):
    words = ("--size", "nano", "--pairs", "5", "--batch", "2", "--repeats", "2")
    result = run_benchmark("embed", *words)["result"]
    assert set(result["seconds"]) == {embedding.MODEL, embedding.EMBED, embedding.IDENTITY}
    seconds = result["cpu_seconds"]
    without_hash = seconds[embedding.EMBED] - seconds[embedding.IDENTITY]
    assert result["cpu_of_model"] == pytest.approx(seconds[embedding.MODEL] / without_hash)
    assert "decoding" in capsys.readouterr().out
