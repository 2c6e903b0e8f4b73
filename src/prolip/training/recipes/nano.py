"""The smallest example: twenty steps of the paper's whole objective, in seconds on one core.

    prolip train nano
    torchrun --nproc-per-node 2 -m prolip train nano
    prolip train nano --variant likelihood

It learns next to nothing; it shows all that a run leaves behind: metrics, checkpoints, held-out checks, the model.
There is no result of the paper's to compare with. The variants other than paper are ours (docs/likelihood.md).
"""

from prolip.training.config import (
    CheckpointConfig,
    DataConfig,
    HeldOutConfig,
    ModelSpec,
    OptimizerConfig,
    TrainConfig,
)
from prolip.training.variants import Variant, apply_variant


def recipe(variant: Variant = "paper") -> TrainConfig:
    """Twenty steps of 32 generated scenes, with two held-out evaluations and four checkpoints.

    Args:
        variant: The paper's objective, or one of ours at the same size (docs/likelihood.md).
    """
    paper = TrainConfig(
        samples=640,
        batch_size=32,
        model=ModelSpec(size="nano", tokenizer="scenes"),
        data=DataConfig(source=("scenes:simple,size=32,length=10000",), workers=0),
        optimizer=OptimizerConfig(lr=1e-3, warmup_steps=5),
        checkpoint=CheckpointConfig(every_steps=5),
        held_out=HeldOutConfig(source="scenes:simple,size=32,length=64,seed=1", samples=64, every_steps=10),
    )
    return apply_variant(paper, variant, "runs/nano")
