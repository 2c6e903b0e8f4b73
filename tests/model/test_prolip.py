"""The model's face: embedding, probabilities, precision, compilation, what stays put for LiT and LoRA."""

import copy
import io
import shutil
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.utils import parametrize

import prolip
from prolip.gaussian import Gaussian
from prolip.losses.contrastive import ppcl
from prolip.model import inference
from prolip.model.prolip import ProLIP
from prolip.preprocessing.tokenizer import Tokenizer
from prolip.preprocessing.tokenizer_builders import train_word_level

TEXTS = ["a red circle", "a thing", "two yellow stars and a circle above a small green square", ""]


@pytest.fixture
def pil_images(generator):
    """Five images of different sizes."""
    return [
        Image.fromarray(
            torch.randint(256, (40 + i, 60 - 5 * i, 3), dtype=torch.uint8, generator=generator).numpy()
        )
        for i in range(5)
    ]


def deterministic(model):
    config = model.config.with_uncertainty("none")
    config = replace(config, contrastive_loss="softmax")
    return ProLIP(config, model.tokenizer).init_weights(torch.Generator().manual_seed(1)).eval()


def test_embeddings_are_gaussians_of_unit_means(nano, pil_images):
    images, texts = nano.embed_images(pil_images), nano.embed_texts(TEXTS)
    assert isinstance(images, Gaussian)
    assert images.shape == (5, 32)
    assert texts.shape == (4, 32)
    for z in (images, texts):
        z.check()
        torch.testing.assert_close(z.mean.norm(dim=-1), torch.ones(len(z)))
        assert not z.mean.requires_grad


def test_log_var_starts_near_minus_ten(nano, pil_images):
    for z in (nano.embed_images(pil_images), nano.embed_texts(TEXTS)):
        assert z.log_var.mean() == pytest.approx(-10.0, abs=0.5)
        assert 0.3 < z.log_var.std() < 2.0


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_batch_size_does_not_change_embeddings(nano, pil_images, batch_size):
    for found, wanted in (
        (nano.embed_images(pil_images, batch_size=batch_size), nano.embed_images(pil_images)),
        (nano.embed_texts(TEXTS, batch_size=batch_size), nano.embed_texts(TEXTS)),
    ):
        torch.testing.assert_close(found.mean, wanted.mean, rtol=0, atol=1e-6)
        torch.testing.assert_close(found.log_var, wanted.log_var, rtol=0, atol=1e-5)


def test_embed_equals_preprocess_and_encode(nano, pil_images):
    pixels = torch.stack([nano.preprocess(image) for image in pil_images])
    with torch.no_grad():
        wanted = nano.encode_image(pixels)
    torch.testing.assert_close(nano.embed_images(pil_images).mean, wanted.mean, rtol=0, atol=1e-6)
    with torch.no_grad():
        wanted = nano.encode_text(nano.tokenize(TEXTS))
    torch.testing.assert_close(nano.embed_texts(TEXTS).mean, wanted.mean, rtol=0, atol=1e-6)


def test_paths_arrays_and_pil_are_the_same(nano, pil_images, tmp_path):
    file = tmp_path / "image.png"
    pil_images[0].save(file)
    array = np.asarray(pil_images[0])
    tensor = torch.from_numpy(array.copy()).permute(2, 0, 1)
    found = nano.embed_images([str(file), file, file.read_bytes(), pil_images[0], array, tensor])
    for z in found:
        torch.testing.assert_close(z.mean, found[0].mean, rtol=0, atol=1e-6)


def test_a_single_input_is_a_batch_of_one(nano, pil_images):
    assert nano.embed_images(pil_images[0]).shape == (1, 32)
    assert nano.embed_images(np.asarray(pil_images[0])).shape == (1, 32)
    assert nano.embed_texts("a thing").shape == (1, 32)
    assert nano.embed_images(np.zeros((2, 20, 20, 3), dtype=np.uint8)).shape == (2, 32)


def test_empty_input_gives_empty_gaussian(nano):
    assert nano.embed_images([]).shape == (0, 32)
    assert nano.embed_texts([]).shape == (0, 32)


def test_embed_images_names_the_bad_image(nano, pil_images, tmp_path):
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"image 1: .*bad.jpg"):
        nano.embed_images([pil_images[0], bad, pil_images[1]])
    with pytest.raises(FileNotFoundError, match=r"image 2: .*nowhere.png"):
        nano.embed_images([pil_images[0], pil_images[1], "nowhere.png"])
    with pytest.raises(ValueError, match="batch_size must be a whole number of at least 1, not 0"):
        nano.embed_images(pil_images, batch_size=0)


def test_embed_texts_names_the_bad_text_by_its_index(nano):
    with pytest.raises(TypeError, match=r"texts\[2\] must be a str, not int"):
        nano.embed_texts(["a", "a thing here and more", 3, "a red circle"])


def test_lazily_opened_image_may_occur_twice(nano, pil_images, tmp_path):
    pil_images[0].resize((900, 700)).save(tmp_path / "big.jpg")
    with Image.open(tmp_path / "big.jpg") as image:
        found = nano.embed_images([image] * 16)
    assert (found.mean - found.mean[0]).abs().max() < 1e-6


def test_embed_images_raises_without_reading_the_rest(nano, pil_images, monkeypatch):
    read = []
    reader = inference.read_image

    def slow(source):
        read.append(source)
        if len(read) == 1:
            raise ValueError("bad")
        time.sleep(0.02)
        return reader(source)

    monkeypatch.setattr(inference, "read_image", slow)
    with pytest.raises(ValueError, match="image 0: bad"):
        nano.embed_images([np.asarray(pil_images[0])] * 600, batch_size=200)
    assert len(read) < 100


def test_embed_images_rejects_impossible_file_names(nano):
    with pytest.raises(ValueError, match="image 0: "):
        nano.embed_images(["\ud800.png"])


def test_model_without_weights_raises(nano):
    model = ProLIP(nano.config, nano.tokenizer)
    with pytest.raises(ValueError, match="this model has no weights yet"):
        model.embed_texts("a")
    with pytest.raises(ValueError, match=r"has no values yet.*init_weights"):
        model.save_pretrained("nowhere")


def test_create_does_not_use_the_global_generator(tokenizer):
    before = torch.get_rng_state()
    prolip.create("nano", tokenizer)
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(TypeError, match="must be a Tokenizer"):
        prolip.create("nano", None)


def test_embed_images_rejects_other_types(nano):
    with pytest.raises(TypeError, match=r"images must be .* not NoneType"):
        nano.embed_images(None)
    with pytest.raises(TypeError, match="image 0: an image is a path"):
        nano.embed_images([3])
    with pytest.raises(TypeError, match=r"images must be .* not BytesIO"):
        nano.embed_images(io.BytesIO(b"x"))


def test_a_bad_text_is_named(nano):
    with pytest.raises(TypeError, match="must be a str"):
        nano.embed_texts(["a", None])


def test_few_images_are_read_ahead(nano, pil_images, monkeypatch):
    """Never more than three batches in memory, however long the list."""
    read, encoded, most = 0, 0, 0
    reader, encoder = inference.read_image, ProLIP.encode_image

    def counted(source):
        nonlocal read, most
        read += 1
        most = max(most, read - encoded)
        return reader(source)

    def counting(self, pixels, keep=None):
        nonlocal encoded
        encoded += len(pixels)
        return encoder(self, pixels, keep)

    monkeypatch.setattr(inference, "read_image", counted)
    monkeypatch.setattr(ProLIP, "encode_image", counting)
    nano.embed_images(pil_images * 6, batch_size=2)
    assert read == encoded == 30
    assert 2 < most <= 8


def test_long_and_short_texts_share_no_batch(nano, monkeypatch):
    seen = []
    encode = ProLIP.encode_text
    monkeypatch.setattr(
        ProLIP, "encode_text", lambda self, ids: (seen.append(ids.shape[1]), encode(self, ids))[1]
    )
    nano.embed_texts(["a thing", "a red circle above a blue star"] * 4, batch_size=4)
    assert sorted(seen) == [2, 7]


def test_progress_is_shown_on_request(nano, capsys):
    nano.embed_texts(TEXTS, progress=True)
    assert "texts/s" in capsys.readouterr().err
    nano.embed_texts(TEXTS, progress=False)
    nano.embed_texts(TEXTS)  # not a terminal
    assert capsys.readouterr().err == ""


def test_match_probability_is_eq_2(nano, draw):
    images, texts = draw(4, 32), draw(4, 32)
    found = nano.match_probability_matrix(images, texts)
    a, b = nano.logit_scale.double().exp(), nano.logit_bias.double()
    for i in range(4):
        for j in range(4):
            distance = (
                (images.mean[i] - texts.mean[j]).square().sum() + images.var[i].sum() + texts.var[j].sum()
            )
            wanted = 1 / (1 + torch.exp(-(a * (1 - distance / 2) + b)))
            torch.testing.assert_close(found[i, j], wanted, rtol=1e-4, atol=0)
    torch.testing.assert_close(nano.match_probability(images, texts), found.diagonal())


def test_match_probability_is_what_ppcl_trains(nano, draw):
    images, texts = draw(3, 32, low=-9, high=-3), draw(3, 32, low=-9, high=-3)
    p = nano.match_probability_matrix(images, texts)
    likelihood = torch.where(torch.eye(3, dtype=torch.bool), p, 1 - p).log().sum()
    torch.testing.assert_close(ppcl(images, texts, nano.temperature), -likelihood / 3, rtol=1e-5, atol=0)


def test_match_probability_rejects_invalid_input(nano, draw):
    with pytest.raises(ValueError, match="rows are paired"):
        nano.match_probability(draw(3, 32), draw(4, 32))
    with pytest.raises(ValueError, match=r"images must be \(N, D\) and texts \(M, D\)"):
        nano.match_probability_matrix(draw(3, 32), draw(4, 16))
    with pytest.raises(ValueError, match="a pair has no probability"):
        deterministic(nano).match_probability(draw(3, 32), draw(3, 32))


def test_a_deterministic_model_gives_points(nano, pil_images):
    model = deterministic(nano)
    z = model.embed_images(pil_images)
    assert (z.log_var == -torch.inf).all()
    assert (z.uncertainty == 0).all()
    distance = prolip.csd_matrix(z, model.embed_texts(TEXTS))
    assert distance.shape == (5, 4)
    assert model.temperature.logit_bias == 0


def test_forward_encodes_images_and_texts(nano, pil_images):
    pixels, ids = torch.stack([nano.preprocess(p) for p in pil_images]), nano.tokenize(TEXTS)
    images, texts = nano(pixels, ids)
    torch.testing.assert_close(images.mean, nano.encode_image(pixels).mean)
    torch.testing.assert_close(texts.log_var, nano.encode_text(ids).log_var)
    assert nano(pixels)[1] is None


@pytest.mark.parametrize("half", ["autocast", "model"])
def test_half_precision_stays_near(nano, pil_images, half):
    """Products in bfloat16; log-variances and means come out in float32."""
    pixels, ids = torch.stack([nano.preprocess(p) for p in pil_images]), nano.tokenize(TEXTS)
    wanted = nano.encode_image(pixels), nano.encode_text(ids)
    model = copy.deepcopy(nano).to(torch.bfloat16) if half == "model" else nano
    with torch.autocast("cpu", torch.bfloat16, enabled=half == "autocast"):
        found = model.encode_image(pixels), model.encode_text(ids)
    for z, exact in zip(found, wanted, strict=True):
        assert z.mean.dtype == z.log_var.dtype == torch.float32
        torch.testing.assert_close(z.mean.norm(dim=-1), torch.ones(len(z)))
        torch.testing.assert_close(z.mean, exact.mean, rtol=0, atol=0.03)
        torch.testing.assert_close(z.log_var, exact.log_var, rtol=0, atol=0.15)
        assert (z.mean - exact.mean).abs().max() > 1e-5  # it did compute in bfloat16


def test_double_stays_double(nano, pil_images):
    z = nano.double().embed_images(pil_images)
    assert z.mean.dtype == z.log_var.dtype == torch.float64


@pytest.mark.slow
@pytest.mark.parametrize("uncertainty", ["token", "none", "multihead"])
def test_model_compiles_as_a_full_graph(nano, pil_images, uncertainty):
    """torch.compile sees no break; real compilation is the slow test below."""
    model = ProLIP(nano.config.with_uncertainty(uncertainty), nano.tokenizer).init_weights(
        torch.Generator().manual_seed(2)
    )
    _same_compiled(model, pil_images, "eager", sizes=(4,))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile's inductor needs a C++ compiler")
def test_compiled_gives_the_same_numbers(nano, pil_images):
    _same_compiled(nano, pil_images, "inductor", sizes=(4, 2))


def _same_compiled(model, pil_images, backend, sizes):
    pixels, ids = torch.stack([model.preprocess(p) for p in pil_images]), model.tokenize(TEXTS)
    torch._dynamo.reset()
    for encode, batch in ((model.encode_image, pixels), (model.encode_text, ids)):
        compiled = torch.compile(encode, backend=backend, fullgraph=True)
        for part in (batch[:size] for size in sizes):
            found, wanted = compiled(part), encode(part)
            torch.testing.assert_close(found.mean, wanted.mean, rtol=0, atol=2e-6)
            torch.testing.assert_close(found.log_var, wanted.log_var, rtol=0, atol=2e-5)


def test_checkpointing_is_switched_for_both_towers(nano, pil_images):
    pixels, ids = torch.stack([nano.preprocess(p) for p in pil_images[:4]]), nano.tokenize(TEXTS)

    def gradients():
        nano.zero_grad()
        images, texts = nano(pixels, ids)
        ppcl(images, texts, nano.temperature).backward()
        return {name: p.grad.clone() for name, p in nano.named_parameters()}

    plain = gradients()
    for stack in (nano.image.blocks, nano.text.blocks):
        assert not stack.checkpointing
    nano.set_grad_checkpointing()
    assert nano.image.blocks.checkpointing
    assert nano.text.blocks.checkpointing
    for name, value in gradients().items():
        torch.testing.assert_close(value, plain[name], rtol=1e-4, atol=1e-6)
    nano.set_grad_checkpointing(False)
    assert not nano.image.blocks.checkpointing


def test_fresh_weights_depend_on_the_seed_only(tokenizer):
    a, b, c = (prolip.create("nano", tokenizer, seed=seed) for seed in (0, 0, 1))
    torch.rand(3)
    for (name, x), y, z in zip(
        a.state_dict().items(), b.state_dict().values(), c.state_dict().values(), strict=True
    ):
        assert torch.equal(x, y)
        assert x.unique().numel() == 1 or not torch.equal(x, z), name


def full_of_nan(model, device):
    """In place of `to_empty`, which gives whatever the memory held."""
    torch.nn.Module.to_empty(model, device=device)
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(torch.nan)


@pytest.mark.parametrize("uncertainty", ["token", "none", "multihead"])
def test_every_parameter_is_given_a_value(nano, uncertainty, monkeypatch):
    model = ProLIP(nano.config.with_uncertainty(uncertainty))
    monkeypatch.setattr(ProLIP, "to_empty", full_of_nan)
    model.init_weights(torch.Generator().manual_seed(0))
    for name, p in model.named_parameters():
        assert p.isfinite().all(), name
    assert model.temperature.scale.item() == pytest.approx(10.0)
    assert model.logit_bias.item() == -10.0


def test_names_of_parameters_stay():
    """LoRA and LiT configurations of users name them: a change is a breaking one."""
    tokenizer = train_word_level(["a b"], context_length=8)
    names = set(prolip.create("nano", tokenizer).state_dict())
    block = [
        f"{part}.{kind}"
        for part in ("norm1", "attention.qkv", "attention.out", "norm2", "mlp.up", "mlp.down")
        for kind in ("weight", "bias")
    ]
    tower = ["class_token", "uncertainty_token", "positions", "norm_post.weight", "norm_post.bias", "mean.weight",
             "log_var.weight", "log_var.bias", *(f"blocks.{i}.{name}" for i in (0, 1) for name in block)]  # fmt: skip
    wanted = {f"{side}.{name}" for side in ("image", "text") for name in tower}
    wanted |= {"image.stem.0.weight", "image.norm_pre.weight", "image.norm_pre.bias", "text.tokens.weight",
               "text.mean.bias", "logit_scale", "logit_bias"}  # fmt: skip
    assert names == wanted


class LowRank(torch.nn.Module):
    def __init__(self, layer, rank=2):
        super().__init__()
        self.down = torch.nn.Parameter(torch.randn(rank, layer.in_features) * 0.1)
        self.up = torch.nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, weight):
        return weight + self.up @ self.down


def test_lora_through_names(nano, pil_images):
    """Low-rank additions to every block's maps: nothing changes at first, only they learn, they take effect."""
    pixels = torch.stack([nano.preprocess(p) for p in pil_images])
    before = nano.encode_image(pixels).mean.detach()
    nano.requires_grad_(False)
    layers = [(n, m) for n, m in nano.named_modules() if isinstance(m, torch.nn.Linear) and ".blocks." in n]
    assert len(layers) == 2 * 2 * 4
    for _, layer in layers:
        parametrize.register_parametrization(layer, "weight", LowRank(layer))
    torch.testing.assert_close(nano.encode_image(pixels).mean, before)
    nano.encode_image(pixels).mean[:, 0].sum().backward()
    touched = {name for name, p in nano.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}
    assert touched
    assert all(
        ".parametrizations.weight.0.up" in name and name.startswith("image.blocks") for name in touched
    )
    assert len(touched) == 8
    with torch.no_grad():
        for _, layer in layers:
            layer.parametrizations.weight[0].up.add_(0.1)
    assert (nano.encode_image(pixels).mean - before).abs().max() > 1e-3


def test_a_frozen_tower_stays(nano, pil_images):
    """LiT: the image tower is locked, the text tower learns."""
    pixels, ids = torch.stack([nano.preprocess(p) for p in pil_images[:4]]), nano.tokenize(TEXTS)
    nano.image.requires_grad_(False)
    ppcl(*nano(pixels, ids), nano.temperature).backward()
    assert all(p.grad is None for p in nano.image.parameters())
    assert all(p.grad is not None for p in nano.text.parameters())


def test_embed_texts_without_tokenizer_raises(nano):
    model = ProLIP(nano.config).init_weights(torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match=r"this model has no tokenizer: put tokenizer.json into its folder"):
        model.embed_texts(["a"])


def test_a_tokenizer_must_fit(nano):
    other = train_word_level(["a b c d"], context_length=16)
    with pytest.raises(ValueError, match=r"vocab_size 7, context_length 16 .* the text tower needs"):
        nano.set_tokenizer(other)


def test_set_tokenizer_takes_over_its_ids(nano):
    """Padding is masked by the new id from then on."""
    rules = replace(nano.tokenizer.config, pad_id=5)
    before = nano.encode_text(torch.tensor([[7, 5, 5]])).mean
    nano.tokenizer_error = "some reason"
    nano.set_tokenizer(Tokenizer(nano.tokenizer.copy_backend(), rules))
    assert nano.config.text.tokenizer == nano.text.config.tokenizer == rules
    assert nano.tokenizer_error == ""
    after = nano.encode_text(torch.tensor([[7, 5, 5]])).mean
    assert (after - before).abs().max() > 1e-4
    torch.testing.assert_close(after, nano.encode_text(torch.tensor([[7]])).mean)


def test_a_tokenizer_must_pad_as_the_tower_reads(nano):
    rules = replace(nano.tokenizer.config, pad_to="context")
    with pytest.raises(ValueError, match="pad_to 'context'; the text tower needs"):
        nano.set_tokenizer(Tokenizer(nano.tokenizer.copy_backend(), rules))


def test_texts_alone(nano):
    images, texts = nano(ids=nano.tokenize(TEXTS))
    assert images is None
    assert texts.shape == (4, 32)


def test_match_probability_of_half_precision(nano, draw):
    images, texts = (draw(3, 32, low=-9, high=-3, dtype=torch.float32) for _ in range(2))
    halves = images.to(torch.bfloat16), texts.to(torch.bfloat16)
    exact = Gaussian(halves[0].mean.float(), images.log_var), Gaussian(halves[1].mean.float(), texts.log_var)
    for probability in (nano.match_probability, nano.match_probability_matrix):
        assert probability(*halves).dtype == torch.float32
        assert probability(*exact).min() > 0
        torch.testing.assert_close(probability(*halves), probability(*exact), rtol=1e-5, atol=0)
        assert not probability(*exact).requires_grad
        with pytest.raises(TypeError, match="texts must be a Gaussian"):
            probability(images, texts.mean)
    wider = draw(2, 32, low=-2, high=0)
    found = nano.match_probability_matrix(draw(3, 32, low=-30, high=-20), wider)
    assert found.shape == (3, 2)
    one_by_one = torch.stack(
        [nano.match_probability_matrix(images.to(torch.float64), wider[j : j + 1])[:, 0] for j in (0, 1)], 1
    )
    torch.testing.assert_close(nano.match_probability_matrix(images.to(torch.float64), wider), one_by_one)


def test_progress_bar_only_for_several_batches(nano, pil_images, monkeypatch):
    asked, counted = [], []

    @contextmanager
    def bar(description, total, unit, show):
        asked.append((total, unit, show))
        yield counted.append

    monkeypatch.setattr(inference, "progress_bar", bar)
    nano.embed_images(pil_images)
    nano.embed_images(pil_images, batch_size=2)
    nano.embed_texts(TEXTS)
    nano.embed_texts(TEXTS, batch_size=3)
    assert asked == [(5, "images", False), (5, "images", None), (4, "texts", False), (4, "texts", None)]
    assert counted == [5, 2, 2, 1, 4, 3, 1]


def test_repr_describes_the_model(nano):
    count = sum(p.numel() for p in nano.parameters())
    assert repr(nano).startswith(f"ProLIP({count / 1e6:.4g}M parameters")
    assert "32 dimensions, images of 32, texts of 16, uncertainty token, float32 on cpu" in repr(nano)


def test_deep_copies_and_pickles(nano, pil_images):
    import pickle

    wanted = nano.embed_images(pil_images).mean
    for other in (copy.deepcopy(nano), pickle.loads(pickle.dumps(nano))):
        torch.testing.assert_close(other.embed_images(pil_images).mean, wanted)
        assert other.embed_texts("a thing").shape == (1, 32)


def test_an_empty_model_uses_no_memory(nano):
    assert all(p.is_meta for p in ProLIP(nano.config).parameters())
