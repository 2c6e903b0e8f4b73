"""The benchmark of text lengths: both ways give the same Gaussians, and the reference computes the padding."""

import pytest
import torch

from benchmarks import text_length
from prolip.model.transformer import Transformer

pytestmark = pytest.mark.slow


def test_padded_texts_have_our_embeddings(monkeypatch):
    model = text_length.make_model("nano")
    captions = text_length.draw_captions(20)
    lengths = []
    forward = Transformer.forward

    def record(self, x, *args):
        lengths.append(x.shape[1])
        return forward(self, x, *args)

    monkeypatch.setattr(Transformer, "forward", record)
    padded = text_length.embed_padded(model, captions, 8)
    assert lengths == [text_length.CONTEXT + 2] * 3  # with [UNC] and [CLS]
    ours = model.embed_texts(captions, batch_size=8, progress=False)
    assert max(lengths[3:]) == max(len(caption.split()) for caption in captions) + 2
    torch.testing.assert_close(padded.mean, ours.mean, rtol=0, atol=1e-5)
    torch.testing.assert_close(padded.log_var, ours.log_var, rtol=0, atol=1e-4)


def test_captions_have_the_lengths_of_captions():
    lengths = sorted(len(caption.split()) for caption in text_length.draw_captions(2000))
    assert 11 <= lengths[1000] <= 13
    assert lengths[-1] <= text_length.CONTEXT


def test_text_command(run_benchmark, capsys):
    words = ("--size", "nano", "--texts", "6", "--batch", "4", "--repeats", "1")
    result = run_benchmark("text", *words)["result"]
    assert result["times_faster"][text_length.PADDED] == 1
    assert set(result["rates"]) == {text_length.PADDED, text_length.OURS}
    assert "natural length" in capsys.readouterr().out
