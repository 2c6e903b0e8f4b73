"""PGD: it lowers accuracy, stays in its ball, and leaves no trace on the model."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from prolip.evaluation.pgd import PGDAttack, attack_batch, attack_images
from prolip.gaussian import Gaussian
from prolip.measures.nearest import similarity
from prolip.model.prolip import ProLIP
from prolip.preprocessing.images import normalize
from tests.evaluation.likelihood import as_likelihood


@pytest.fixture
def pixels(generator):
    low = torch.randint(0, 256, (12, 3, 8, 8), generator=generator).float()
    return torch.nn.functional.interpolate(low, size=32, mode="nearest").to(torch.uint8)


@pytest.fixture
def task(nano, pixels, draw):
    """Classes about the center of the images' embeddings, and the model's own clean predictions as labels."""
    with torch.no_grad():
        images = nano.encode_image(normalize(pixels, nano.config.image.preprocessing))
    offsets = draw(6, 32, low=-8.0, high=-6.0, dtype=torch.float32)
    mean = torch.nn.functional.normalize(images.mean.mean(0) + 0.6 * offsets.mean, dim=-1)
    classes = Gaussian(mean, offsets.log_var)
    return classes, similarity(images, classes).argmax(1)


def accuracy(images, labels, classes, by="csd"):
    return (similarity(images, classes, by).argmax(1) == labels).double().mean().item()


@pytest.mark.parametrize("start", ["random", "clean"])
def test_accuracy_falls_and_the_pixels_stay_in_the_ball(nano, pixels, task, start):
    classes, labels = task
    attack = PGDAttack(steps=(1, 4, 12), epsilon=16 / 255, step_size=4 / 255, start=start)
    done = attack_batch(nano, pixels, labels, classes, attack)
    assert [one.steps for one in done] == [1, 4, 12]
    clean = pixels.float() / 255
    for one in done:
        assert one.pixels.shape == pixels.shape
        assert one.pixels.min() >= 0
        assert one.pixels.max() <= 1
        assert (one.pixels - clean).abs().max() <= attack.epsilon + 1e-6
    assert (done[-1].pixels - clean).abs().max() > 0.9 * attack.epsilon
    assert accuracy(done[-1].images, labels, classes) < 0.7, "clean: 1.0, labels are its own predictions"
    assert torch.allclose(
        done[-1].images.mean,
        nano.encode_image((done[-1].pixels - _constants(nano, "mean")) / _constants(nano, "std")).mean,
        atol=1e-6,
    )


def _constants(model, name):
    return torch.tensor(getattr(model.config.image.preprocessing, name))[:, None, None]


@pytest.mark.parametrize("is_likelihood", [False, True])
def test_first_step_is_the_sign_of_the_gradient(nano, pixels, task, is_likelihood):
    """By central differences in float64 along single pixels."""
    classes, labels = task
    model = as_likelihood(nano).double() if is_likelihood else nano.double()
    metric = model.logit_parameters if is_likelihood else "csd"
    attack = PGDAttack(steps=(1,), epsilon=2 / 255, step_size=1 / 255, start="clean", metric=metric)
    wide = Gaussian(classes.mean.double(), classes.log_var.double())
    inner = pixels.clamp(10, 245)
    (done,) = attack_batch(model, inner, labels, wide, attack)
    clean = inner.double() / 255

    def loss(shares):
        images = model.encode_image(
            (shares - _constants(model, "mean").double()) / _constants(model, "std").double()
        )
        logits = model.temperature.scale * similarity(images, wide)
        if is_likelihood:
            logits = metric.logits_matrix(images, wide)
        return cross_entropy(logits, labels, reduction="sum").item()

    with torch.no_grad():
        for place in [(0, 0, 5, 9), (3, 1, 20, 2), (7, 2, 16, 16), (11, 0, 31, 31)]:
            nudge = torch.zeros_like(clean)
            nudge[place] = 1e-5
            slope = loss(clean + nudge) - loss(clean - nudge)
            moved = (done.pixels.double() - clean)[place].item()
            assert moved == pytest.approx(attack.step_size * (1 if slope > 0 else -1), abs=1e-6)


def test_nothing_is_left_on_the_model(nano, pixels, task):
    classes, labels = task
    nano.train()
    nano.image.eval()
    modes = [module.training for module in nano.modules()]
    nano.text.requires_grad_(False)
    wanted = [parameter.requires_grad for parameter in nano.parameters()]
    before = {name: value.clone() for name, value in nano.state_dict().items()}
    assert all(parameter.grad is None for parameter in nano.parameters())
    with torch.no_grad():  # also where the caller wants no gradients
        done = attack_batch(nano, pixels, labels, classes, PGDAttack(steps=(2,)))
    assert all(parameter.grad is None for parameter in nano.parameters())
    assert [parameter.requires_grad for parameter in nano.parameters()] == wanted
    assert [module.training for module in nano.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in nano.state_dict().items())
    assert not done[0].pixels.requires_grad
    assert not done[0].images.mean.requires_grad


def test_an_error_inside_leaves_the_mode_as_it_was(nano, pixels, task, monkeypatch):
    classes, labels = task
    nano.train()

    def fail(*_):
        raise RuntimeError("no")

    monkeypatch.setattr(nano, "encode_image", fail)
    with pytest.raises(RuntimeError, match="no"):
        attack_batch(nano, pixels, labels, classes, PGDAttack())
    assert nano.training


def test_fewer_steps_are_a_prefix_of_more(nano, pixels, task):
    classes, labels = task
    once = attack_batch(nano, pixels, labels, classes, PGDAttack(steps=(3, 1)))
    assert [one.steps for one in once] == [3, 1]
    for one in once:
        (alone,) = attack_batch(nano, pixels, labels, classes, PGDAttack(steps=(one.steps,)))
        assert torch.equal(alone.pixels, one.pixels)


def test_batches_change_nothing(nano, pixels, task):
    classes, labels = task
    attack, numbers = PGDAttack(steps=(2,), epsilon=16 / 255, step_size=4 / 255), list(range(40, 52))
    whole = attack_images(nano, pixels, labels, classes, attack, sample_indices=numbers)[2]
    parts = attack_images(nano, list(pixels), labels, classes, attack, sample_indices=numbers, batch_size=5)[
        2
    ]
    assert torch.allclose(whole.mean, parts.mean, atol=1e-4)
    others = attack_images(nano, pixels, labels, classes, attack)[2]
    assert not torch.allclose(whole.mean, others.mean, atol=1e-4), "the random start is the number's"


def test_a_deterministic_model_and_cosine(nano, pixels, task, generator):
    classes, labels = task
    model = ProLIP(nano.config.with_uncertainty("none"), nano.tokenizer).init_weights(generator).eval()
    points = Gaussian.point(classes.mean)
    done = attack_batch(model, pixels, labels, points, PGDAttack(steps=(1,), metric="cosine"))
    assert not done[0].images.uncertainty.any()
    assert torch.isfinite(done[0].images.mean).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 8}, "fraction of full scale"),
        ({"step_size": 0}, "fraction of full scale"),
        ({"steps": ()}, "at least one"),
        ({"steps": (0, 1)}, "at least 1"),
        ({"start": "zero"}, "is not one of"),
        ({"metric": "l2"}, "is not one of"),
    ],
)
def test_an_attack_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        PGDAttack(**options)


def test_invalid_images_or_labels_are_rejected(nano, pixels, task):
    classes, labels = task
    with pytest.raises(ValueError, match="uint8"):
        attack_batch(nano, pixels.float(), labels, classes, PGDAttack())
    with pytest.raises(ValueError, match="one per image"):
        attack_batch(nano, pixels, labels[:3], classes, PGDAttack())
    with pytest.raises(ValueError, match="0 to 5"):
        attack_batch(nano, pixels, labels + 6, classes, PGDAttack())
    with pytest.raises(ValueError, match="no images"):
        attack_images(nano, pixels[:0], labels[:0], classes, PGDAttack())


def test_another_seed_is_another_start(nano, pixels, task):
    classes, labels = task
    first, again, other = (
        attack_batch(nano, pixels[:2], labels[:2], classes, PGDAttack(steps=(1,), seed=seed))[0].pixels
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_first_step_follows_the_loss_of_the_models_own_logits_everywhere(nano, pixels, task):
    classes, labels = task
    wide = Gaussian(classes.mean.double(), classes.log_var.double() + 5.0)
    model, inner = nano.double(), pixels.clamp(10, 245)
    (done,) = attack_batch(model, inner, labels, wide, PGDAttack(steps=(1,), start="clean"))
    shares = (inner.double() / 255).requires_grad_()
    images = model.encode_image((shares - _constants(model, "mean")) / _constants(model, "std"))
    loss = cross_entropy(model.temperature.scale * similarity(images, wide), labels, reduction="sum")
    (slope,) = torch.autograd.grad(loss, shares)
    clear = slope.abs() > 1e-3 * slope.abs().amax((1, 2, 3), keepdim=True)
    moved = done.pixels - inner / 255
    assert clear.double().mean() > 0.5
    assert torch.equal(moved.sign()[clear].double(), slope.sign()[clear])
