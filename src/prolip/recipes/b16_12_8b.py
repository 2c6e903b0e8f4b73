"""ProLIP ViT-B/16 from scratch: 12.8 billion samples of DataComp-1B, the released main model.

On 32 GPUs (4 nodes of 8; on each node, with the first one's name for HOST):

    torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \\
        -m prolip train b16_12_8b data.source='pipe:cat /data/datacomp/{00000000..00139827}.tar'

781,250 steps. It differs from b16_1_28b in its length, and in eps -20 and c 1000 ("if not specified").

The paper (zero-shot classification results): ImageNet 74.6, shifts 63.0, VTAB 63.7, retrieval 59.6, average of 38
tasks 63.3.
"""

from prolip.losses.objective import Objective
from prolip.train.config import ModelChoice, OptimiserChoice, ParallelChoice, TrainConfig


def recipe() -> TrainConfig:
    return TrainConfig(
        samples=12_800_000_000,
        batch=16_384,
        model=ModelChoice(size="ViT-B-16-768", tokenizer="timm/ViT-B-16-SigLIP", scale=10.0, bias=-10.0),
        objective=Objective(ppcl=1.0, inclusion=1e-7, masked=1e-3, vib=1e-4, c=1000.0, eps=-20.0),
        optimiser=OptimiserChoice(lr=5e-4, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.2, warmup=10_000),
        parallel=ParallelChoice(precision="bfloat16"),
    )
