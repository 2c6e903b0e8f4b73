"""ProLIP ViT-B/16 from scratch: 12.8 billion samples of DataComp-1B, the released main model.

On 32 GPUs (4 nodes of 8; on each node, with the first one's name for HOST):

    torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \\
        -m prolip train b16_12_8b --data.source 'pipe:cat /data/datacomp/{00000000..00139827}.tar'

781,250 steps. It differs from b16_1_28b in its length, and in eps -20 and c 1000 ("if not specified").

The paper (zero-shot classification results): ImageNet 74.6, shifts 63.0, VTAB 63.7, retrieval 59.6, average of 38
tasks 63.3.

--variant likelihood (its control ppcl-matched; nll) is ours, not the paper's, and was not run at this size: see
prolip.training.variants and docs/likelihood.md.
"""

from dataclasses import replace

from prolip.training.config import TrainConfig
from prolip.training.recipes import b16_1_28b
from prolip.training.variants import Variant, apply_variant


def recipe(variant: Variant = "paper") -> TrainConfig:
    """The run of b16_1_28b, ten times as long, with c 1000 and eps -20.

    Args:
        variant: The paper's objective, or one of ours at the same size (docs/likelihood.md).
    """
    short = b16_1_28b.recipe()
    objective = replace(short.objective, c=1000.0, eps=-20.0)
    paper = replace(short, samples=12_800_000_000, objective=objective)
    return apply_variant(paper, variant, "runs/b16_12_8b")
