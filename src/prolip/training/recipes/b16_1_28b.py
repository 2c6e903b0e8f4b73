"""ProLIP ViT-B/16 from scratch: 1.28 billion samples of DataComp-1B, the paper's headline row.

On 32 GPUs (4 nodes of 8; on each node, with the first one's name for HOST):

    torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \\
        -m prolip train b16_1_28b --data.source 'pipe:cat /data/datacomp/{00000000..00139827}.tar'

512 samples per GPU, 78,125 steps. Fewer GPUs: --parallel.accumulation-steps 4 and the like; the loss is the same. The
shards are read as streams: reading them as files would need an index of 47 bytes per sample.

The paper (zero-shot classification results; the same row, eps -10 and c 10, is in "Impact of eps and c"): ImageNet
67.8, shifts 55.3, VTAB 58.5, retrieval 53.0, average of 38 tasks 57.9. CLIP in the same setting: 67.2, 55.1,
56.9, 53.4, 57.1; SigLIP: 67.4, 55.4, 55.7, 53.4, 56.7.

--variant likelihood (its control ppcl-matched; nll) is ours, not the paper's, and was not run at this size: see
prolip.training.variants and docs/likelihood.md.
"""

from prolip.losses.objective import Objective
from prolip.training.config import ModelSpec, OptimizerConfig, ParallelConfig, TrainConfig
from prolip.training.variants import Variant, apply_variant


def recipe(variant: Variant = "paper") -> TrainConfig:
    """The paper's settings for 1.28 billion samples.

    Args:
        variant: The paper's objective, or one of ours at the same size (docs/likelihood.md).
    """
    paper = TrainConfig(
        samples=1_280_000_000,
        batch_size=16_384,
        model=ModelSpec(
            size="ViT-B-16-768", tokenizer="timm/ViT-B-16-SigLIP", init_scale=10.0, init_logit_bias=-10.0
        ),
        objective=Objective(ppcl=1.0, inclusion=1e-7, masked=1e-3, vib=1e-4, c=10.0, eps=-10.0),
        optimizer=OptimizerConfig(
            lr=5e-4, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.2, warmup_steps=10_000
        ),
        parallel=ParallelConfig(precision="bfloat16"),
    )
    return apply_variant(paper, variant, "runs/b16_1_28b")
