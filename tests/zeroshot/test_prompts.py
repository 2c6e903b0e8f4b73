"""Texts in class-major order; their Gaussians where they belong."""

import pytest
import torch

from prolip.embeddings.embedder import Embedder
from prolip.zeroshot.prompts import embed_class_prompts, embed_classes, make_prompt_texts

NAMES = ("circle", "star", "square")
TEMPLATES = ("a {c}", "a red {}")


def test_make_prompt_texts_are_ordered_by_class():
    wanted = ["a circle", "a red circle", "a star", "a red star", "a square", "a red square"]
    assert make_prompt_texts(NAMES, TEMPLATES) == wanted
    assert make_prompt_texts(["{}"], ["a {c}", "{c} and {c}"]) == ["a {}", "{} and {}"], (
        "names are taken as they are"
    )


def test_make_prompt_texts_without_classes_raises():
    with pytest.raises(ValueError, match="At least one class name"):
        make_prompt_texts([], TEMPLATES)


def test_embed_class_prompts_equals_embed_texts(nano):
    found = embed_class_prompts(nano, NAMES, TEMPLATES, batch_size=4, progress=False)
    assert found.shape == (3, 2, 32)
    for row, name in enumerate(NAMES):
        for column, template in enumerate(("a {}", "a red {}")):
            alone = nano.embed_texts(template.format(name))
            torch.testing.assert_close(found.mean[row, column], alone.mean[0], atol=1e-5, rtol=1e-4)
            torch.testing.assert_close(found.log_var[row, column], alone.log_var[0], atol=1e-5, rtol=1e-4)


def test_cached_prompts_are_equal(nano, tmp_path):
    first = embed_class_prompts(nano, NAMES, TEMPLATES, cache=tmp_path, progress=False)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    again = embed_class_prompts(nano, NAMES, TEMPLATES, cache=tmp_path, progress=False)
    assert files
    assert torch.equal(first.mean, again.mean)
    assert torch.equal(first.log_var, again.log_var)


@pytest.mark.parametrize("variance", ["average", "independent"])
def test_embed_classes_pools_prompts(nano, tmp_path, variance):
    found = embed_classes(Embedder(model=nano, cache=tmp_path, progress=False), NAMES, TEMPLATES, variance)
    assert found.shape == (3, 32)
    prompts = embed_class_prompts(nano, NAMES, TEMPLATES, cache=tmp_path, progress=False)
    mean = prompts.mean.mean(1)
    torch.testing.assert_close(found.mean, mean / mean.norm(dim=-1, keepdim=True))
    scale = 1.0 if variance == "average" else 1 / len(TEMPLATES)
    torch.testing.assert_close(found.var, prompts.var.mean(1) * scale)
