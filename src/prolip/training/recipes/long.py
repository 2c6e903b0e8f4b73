"""LongProLIP: the released ViT-B/16 (12.8B) fine-tuned to read 256 tokens instead of 64.

On 32 GPUs (4 nodes of 8; on each node, with the first one's name for HOST):

    torchrun --nnodes 4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \\
        -m prolip train long --data.source /data/sharegpt4v /data/datacomp --data.weights 1 1

256 samples a GPU. The first 20 text positions and those of [UNC] and [CLS] are kept, the others stretched. The model
keeps the release's forward pass (padding attended), in which its weights were trained.

From the release's scripts: rate 1e-6, weight decay 0.01, 200 warm-up steps, batch 256 on each of 32 GPUs, eps -100,
c 10. The paper refers to a technical report for the rest and gives no table; it says that long texts alone hurt
zero-shot tasks, hence a mixture. How many samples are seen is our choice: 10 million, 1,220 steps.

--variant likelihood (its control ppcl-matched; nll) is ours, not the paper's, and was not run at this size. No
model of it was released: it starts from the run b16_12_8b of the same variant, which must exist, or from
--model.pretrained. See prolip.training.variants and docs/likelihood.md.
"""

from prolip.losses.objective import Objective
from prolip.training.config import ModelSpec, OptimizerConfig, ParallelConfig, TrainConfig
from prolip.training.recipes import b16_12_8b
from prolip.training.variants import Variant, apply_variant

RELEASE = "SanghyukChun/ProLIP-ViT-B-16-DC-1B-12_8B"


def recipe(variant: Variant = "paper") -> TrainConfig:
    """The release's settings, with our number of samples.

    Args:
        variant: The paper's objective, or one of ours at the same size (docs/likelihood.md).
    """
    paper = TrainConfig(
        samples=10_000_000,
        batch_size=256 * 32,
        model=ModelSpec(
            pretrained=RELEASE if variant == "paper" else b16_12_8b.recipe(variant).out, context_length=256
        ),
        objective=Objective(ppcl=1.0, inclusion=1e-7, masked=1e-3, vib=1e-4, c=10.0, eps=-100.0),
        optimizer=OptimizerConfig(lr=1e-6, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.01, warmup_steps=200),
        parallel=ParallelConfig(precision="bfloat16"),
    )
    return apply_variant(paper, variant, "runs/long", is_trained=True)
