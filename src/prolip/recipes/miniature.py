"""The paper in miniature: a model of 0.24M parameters learns procedural scenes in minutes on two cores.

    prolip train miniature
    prolip train miniature level=hard

Two processes instead of one: torchrun --nproc-per-node 2 -m prolip train miniature. The data is drawn as it is read.

Not in the paper, and so without a result of it. First half: CLIP's softmax on the means, which learns shapes several
times faster than sigmoids do. Second half: PPCL. The inclusion terms are there throughout, with larger weights than the
paper's, whose tiny ones need a longer run; VIB only in the second half, because a softmax doesn't hold variances, which
VIB then draws to one. level=hard begins on simple scenes: hard ones from the first step
teach colours at once and shapes not for a long time. samples and batch are keys of this recipe, because the half and
the first bias, -ln batch, follow them.
"""

import math
from dataclasses import replace
from typing import Literal

from prolip.losses.objective import Objective
from prolip.train.config import (
    DataChoice,
    HeldOut,
    LogChoice,
    Masking,
    ModelChoice,
    OptimiserChoice,
    Stage,
    TrainConfig,
)

SIMPLE, HARD = "scenes:simple,size=48", "scenes:hard,size=48"


def recipe(
    level: Literal["simple", "hard"] = "simple", samples: int = 160_000, batch: int = 128
) -> TrainConfig:
    scenes = SIMPLE if level == "simple" else HARD
    objective = Objective(inclusion=1e-2, masked=1e-1, vib=1e-3, c=10.0, eps=-100.0)
    softmax = replace(objective, ppcl=0.0, clip=1.0, vib=0.0)
    return TrainConfig(
        out="runs/miniature" if level == "simple" else f"runs/miniature-{level}",
        samples=samples,
        batch=batch,
        model=ModelChoice(size="miniature", tokenizer="scenes", bias=-math.log(batch)),
        data=DataChoice(source=(f"{scenes},length=1000000",), augment=False, workers=1),
        objective=objective,
        before=(Stage(samples=samples // 2, objective=softmax, source=(f"{SIMPLE},length=1000000",)),),
        masking=Masking(images=1 / 8, texts=1 / 2),
        optimiser=OptimiserChoice(
            lr=2e-3, betas=(0.9, 0.98), weight_decay=0.05, warmup=50, final=0.02, clip_norm=1.0, temperature_rate=10.0
        ),
        log=LogChoice(every=20),
        held_out=HeldOut(source=f"{scenes},length=1000,seed=1", samples=1000, every=200),
    )  # fmt: skip
