"""CLIP or SigLIP made probabilistic: fine-tuned with 1.28 billion samples of DataComp-1B at 224 pixels.

On 32 GPUs (4 nodes of 8; on each node, with the first one's name for HOST):

    torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \\
        -m prolip train finetune --pretrained siglip-b16 \\
        --data.source 'pipe:cat /data/datacomp/{00000000..00139827}.tar'

The paper's comparison of fine-tuned models (and ImageNet before, where the resolution may have been another):

    pretrained     hub id                         ImageNet  shifts  VTAB  retrieval  average of 38  before
    siglip-b16     timm/ViT-B-16-SigLIP           74.6      62.2    61.2  58.3       62.1           76.0
    siglip-l16     timm/ViT-L-16-SigLIP-256       79.4      68.6    64.0  61.3       65.9           80.5
    siglip-so400m  timm/ViT-SO400M-14-SigLIP      79.3      69.0    65.1  62.5       66.6           82.0
    clip-h14       apple/DFN5B-CLIP-ViT-H-14      79.4      68.3    64.4  61.6       66.9           83.4

Attention pooling gives way to [CLS], [UNC] is added (docs/weights.md). From the paper: rate, weight decay, samples and
resolution. What it doesn't say is taken from its pre-training: batch 16384, 10,000 warm-up steps, betas; eps -20 and
c 1000 ("if not specified"). The SO400M start reads 16 tokens and goes on reading 16; the released one reads 64.

--variant likelihood (its control ppcl-matched; nll) is ours, not the paper's, and was not run at this size. It adds one
log-variance per sample instead of one per dimension; the means at the start are the same. Any other CLIP or SigLIP:
--model.pretrained. See prolip.training.variants and docs/likelihood.md.
"""

from typing import Literal

from prolip.losses.objective import Objective
from prolip.training.config import ModelSpec, OptimizerConfig, ParallelConfig, TrainConfig
from prolip.training.variants import Variant, apply_variant

HUB_IDS = {
    "siglip-b16": "timm/ViT-B-16-SigLIP",
    "siglip-l16": "timm/ViT-L-16-SigLIP-256",
    "siglip-so400m": "timm/ViT-SO400M-14-SigLIP",
    "clip-h14": "apple/DFN5B-CLIP-ViT-H-14",
}


def recipe(
    pretrained: Literal["siglip-b16", "siglip-l16", "siglip-so400m", "clip-h14"] = "siglip-b16",
    variant: Variant = "paper",
) -> TrainConfig:
    """The run that fine-tunes a model; its folder is runs/finetune/PRETRAINED.

    Args:
        pretrained: The model, as in the table above.
        variant: The paper's objective, or one of ours at the same size (docs/likelihood.md).
    """
    paper = TrainConfig(
        out=f"runs/finetune/{pretrained}",
        samples=1_280_000_000,
        batch_size=16_384,
        model=ModelSpec(pretrained=HUB_IDS[pretrained], image_size=224),
        objective=Objective(ppcl=1.0, inclusion=1e-7, masked=1e-3, vib=1e-4, c=1000.0, eps=-20.0),
        optimizer=OptimizerConfig(
            lr=5e-5, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.0, warmup_steps=10_000
        ),
        parallel=ParallelConfig(precision="bfloat16"),
    )
    return apply_variant(paper, variant, paper.out)
