"""Tests of prolip.distributed: several gloo processes give the loss and the gradients of one process."""

import gc
import os

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import normalize
from torch.nn.parallel import DistributedDataParallel

from prolip import distributed
from prolip.gaussian import Gaussian
from prolip.losses.contrastive import LogitScaleBias
from prolip.losses.objective import GlobalBatch, MaskedPairs, Objective
from tests.processes import start_ranks

OBJECTIVES = {
    "ppcl and all": Objective(inclusion=0.3, masked=0.7, vib=0.1),
    "ppcl, a text at a time": Objective(inclusion=0, masked=0, vib=0, chunk=1),
    "siglip, uneven chunks": Objective(ppcl=0, siglip=1, inclusion=0, masked=0, vib=0, chunk=3),
    "pml and clip": Objective(ppcl=0, pml=1, clip=1, inclusion=0, masked=0, vib=0),
}
SIZES = {2: (3, 5), 3: (4, 0, 4), 4: (1, 3, 2, 2)}


class Model(nn.Module):
    """Two linear towers, scales and biases; a masked input is one whose last features are zero."""

    def __init__(self, objective):
        super().__init__()
        torch.manual_seed(0)
        self.temperatures = {}
        for name, start in objective.make_temperatures().items():
            own = LogitScaleBias.from_tensors(
                *(nn.Parameter(p.detach().double()) for p in (start.logit_scale, start.logit_bias))
            )
            self.temperatures[name] = own
            self.register_parameter(f"{name}_logit_scale", own.logit_scale)
            if name != "clip":  # a softmax has no bias
                self.register_parameter(f"{name}_logit_bias", own.logit_bias)
        self.image, self.text = nn.Linear(6, 8).double(), nn.Linear(6, 8).double()

    def encode(self, tower, x):
        mean, log_var = tower(x).chunk(2, dim=-1)
        return Gaussian(normalize(mean, dim=-1), log_var - 3)

    def forward(self, images, texts, masked):  # the loss is outside, as in training
        blind = torch.tensor([1.0, 1, 1, 0, 0, 0]).double()
        return (
            self.encode(self.image, images), self.encode(self.text, texts),
            self.encode(self.image, images[masked] * blind), self.encode(self.text, texts[masked] * blind),
        )  # fmt: skip


def data():
    generator = torch.Generator().manual_seed(1)
    images, texts = (torch.randn(8, 6, generator=generator, dtype=torch.float64) for _ in range(2))
    return images, texts, torch.tensor([True, False, False, True, False, False, False, False])


def compute_part(model, objective, temperatures, rows, sizes=None):
    """This rank's part of the loss of the global batch."""
    images, texts, masked = data()
    total = int(masked.sum())
    images, texts, masked = images[rows], texts[rows], masked[rows]
    image, text, masked_image, masked_text = model(images, texts, masked)
    batch = None
    if sizes is not None:
        batch = GlobalBatch(
            texts=distributed.gather_mean_trace(text, sizes),
            images=distributed.gather_mean_trace(image, sizes),
            offset=rows.start,
            masked_images=total,
            masked_texts=total,
        )
    return objective(
        image, text, temperatures,
        masked_images=MaskedPairs(image[masked], masked_image), masked_texts=MaskedPairs(text[masked], masked_text),
        batch=batch,
    )  # fmt: skip


def gradients(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def run_rank(rank, folder):
    """All checks for each world size that this rank belongs to. An error ends the process and fails the test.

    The same processes serve all world sizes: starting a process takes longer than its checks.
    """
    torch.set_num_threads(1)
    for world, sizes in SIZES.items():
        if rank >= world:
            continue
        dist.init_process_group("gloo", init_method=f"file://{folder}/{world}", rank=rank, world_size=world)
        check_objectives(rank, world, sizes)
        check_gather(rank, world, sizes)
        gc.collect()  # DDP's reducers hold the group in cycles
        dist.barrier()  # no rank leaves while another still communicates
        dist.destroy_process_group()
    os._exit(0)  # gloo's threads now and then abort the interpreter's own exit; everything has been checked


def check_objectives(rank, world, sizes):
    start = sum(sizes[:rank])
    rows = slice(start, start + sizes[rank])
    assert distributed.gather_batch_sizes(sizes[rank]) == list(sizes)
    for name, objective in OBJECTIVES.items():
        alone, together, wrapped = Model(objective), Model(objective), Model(objective)
        expected = compute_part(alone, objective, alone.temperatures, slice(0, 8))
        expected.total.backward()
        found = compute_part(together, objective, together.temperatures, rows, sizes)
        for term, value in found.values.items():
            total = distributed.sum_over_ranks(value)
            torch.testing.assert_close(total, expected.values[term].detach(), msg=f"{name}: {term}")
        found.total.backward()
        summed = distributed.sum_over_ranks(gradients(together))
        torch.testing.assert_close(summed, gradients(alone), rtol=1e-10, atol=1e-12, msg=name)

        parallel = DistributedDataParallel(wrapped)  # DDP averages: the part times the world size
        (world * compute_part(parallel, objective, wrapped.temperatures, rows, sizes).total).backward()
        torch.testing.assert_close(gradients(wrapped), gradients(alone), rtol=1e-10, atol=1e-12, msg=name)


def check_gather(rank, world, sizes):
    rows = torch.full((sizes[rank], 2), float(rank), requires_grad=True)
    gathered = distributed.all_gather(rows)
    assert gathered[:, 0].tolist() == [float(r) for r in range(world) for _ in range(sizes[r])]
    (gathered * (rank + 1)).sum().backward()
    assert torch.equal(rows.grad, torch.full_like(rows, sum(range(1, world + 1)))), (
        "gradients of all ranks flow back"
    )
    z = Gaussian(torch.zeros(sizes[rank], 4), torch.zeros(sizes[rank], 4))
    sent = []
    collective = dist.all_gather_single

    def count(out, rows):
        sent.append(rows.numel())
        collective(out, rows)

    dist.all_gather_single = count
    gathered = distributed.gather_mean_trace(z, sizes)
    dist.all_gather_single = collective
    assert sent == [5 * max(sizes)], "D + 1 numbers a text, in one call"
    assert (gathered.mean.shape, gathered.uncertainty.shape) == ((sum(sizes), 4), (sum(sizes),))
    with pytest.raises(RuntimeError, match="first derivative only"):
        torch.autograd.grad(distributed.all_gather(rows, sizes).sum(), rows, create_graph=True)
    own = torch.tensor(float(rank + 1))
    assert distributed.sum_over_ranks(own).item() == sum(range(1, world + 1))
    assert own.item() == rank + 1, "the caller's value is left alone"
    with pytest.raises(ValueError, match="number of rows on this rank"):
        distributed.all_gather(rows, [9] * world)


@pytest.mark.slow
def test_ranks_give_the_loss_and_gradients_of_one_process(tmp_path):
    start_ranks(run_rank, (str(tmp_path),), max(SIZES))


def test_functions_are_no_ops_without_a_process_group():
    rows = torch.ones(3, 2, requires_grad=True)
    assert distributed.all_gather(rows) is rows
    assert (distributed.rank(), distributed.world_size(), distributed.gather_batch_sizes(3)) == (0, 1, [3])
    assert distributed.sum_over_ranks(rows).tolist() == rows.tolist()
    z = Gaussian(torch.zeros(2, 3, dtype=torch.bfloat16), torch.zeros(2, 3))
    assert distributed.gather_mean_trace(z).uncertainty.tolist() == [3.0, 3.0]
