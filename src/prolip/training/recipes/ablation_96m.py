"""The paper's ablation of losses: ViT-B/16, 96 million samples of CC3M, CC12M and RedCaps; eight rows.

On 8 GPUs, for any row:

    torchrun --nproc-per-node 8 -m prolip train ablation_96m --row prolip \\
        --data.source /data/cc3m /data/cc12m /data/redcaps

The paper's table of ablations, with the row's name here:

    row                 loss, uncertainty                      ImageNet  avg var image, text  HierarCaps recall
    clip                CLIP, none                             35.5      -       -            48.4
    pml-clip-multihead  PCME++ + CLIP, multi-head              33.6      0.0160  0.0077       55.2
    pml                 PCME++, [UNC] (does not train)          0.1      0.0354  0.0347       -
    pml-clip            PCME++ + CLIP, [UNC]                   36.1      0.2552  0.2118       53.8
    ppcl                PPCL, [UNC]                            37.4      0.3276  0.0745       44.8
    ppcl-inclusion      PPCL + image in text                   36.8      0.0076  0.2324       46.7
    ppcl-masked         PPCL + whole in masked                 37.5      0.3319  0.0610       47.9
    prolip              all terms                              37.0      0.0086  0.2254       54.8

What the paper doesn't say, and what is taken here. Batch 4096: with 16384 the run of 5,859 steps would end inside the
warm-up. Warm-up: the 10,000 steps of all its other runs, 43 % of the 23,437 steps here. VIB: in all rows with
variances, for PCME++ has it, too. eps -20 and c 1000 ("if not specified"). PML and CLIP have a scale each, which start
where PCME++ and CLIP start.

--variant likelihood (its control ppcl-matched; nll) is ours, not the paper's, and was not run at this size. It changes
the rows with PPCL, so that --row ppcl --variant likelihood is the likelihood without inclusion terms: see
prolip.training.variants and docs/likelihood.md.
"""

from typing import Literal

from prolip.losses.objective import Objective
from prolip.model.config import Uncertainty
from prolip.training.config import ModelSpec, OptimizerConfig, ParallelConfig, TrainConfig
from prolip.training.variants import Variant, apply_variant

Row = Literal[
    "clip", "pml-clip-multihead", "pml", "pml-clip", "ppcl", "ppcl-inclusion", "ppcl-masked", "prolip"
]
CLIP_SCALE = 1 / 0.07
"""Logit scale at which CLIP starts."""


def recipe(row: Row = "prolip", variant: Variant = "paper") -> TrainConfig:
    """The run of a row of the table; its folder is runs/ablation_96m/ROW.

    Args:
        row: What is trained, as in the table above.
        variant: The paper's objective, or one of ours at the same size (docs/likelihood.md).
    """
    paper = TrainConfig(
        out=f"runs/ablation_96m/{row}",
        samples=96_000_000,
        batch_size=4096,
        model=_make_model_spec(row),
        objective=_make_objective(row),
        optimizer=OptimizerConfig(
            lr=5e-4, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.2, warmup_steps=10_000
        ),
        parallel=ParallelConfig(precision="bfloat16"),
    )
    return apply_variant(paper, variant, paper.out)


def _make_model_spec(row: Row) -> ModelSpec:
    """The row's ViT-B/16: source of its log-variances, and for rows with CLIP the scale that CLIP starts with."""
    uncertainty: Uncertainty = "token"
    if row in ("clip", "pml-clip-multihead"):
        uncertainty = "none" if row == "clip" else "multihead"
    if "clip" in row:
        return ModelSpec(
            tokenizer="timm/ViT-B-16-SigLIP",
            uncertainty=uncertainty,
            contrastive_loss="softmax" if row == "clip" else "sigmoid",  # PML gives a pair a probability
            init_scale=CLIP_SCALE,
        )
    return ModelSpec(tokenizer="timm/ViT-B-16-SigLIP", uncertainty=uncertainty)


def _make_objective(row: Row) -> Objective:
    """The row's objective: the loss terms that its name lists (prolip: all of the paper's), by the paper's weights."""
    return Objective(
        ppcl=float("ppcl" in row or row == "prolip"),
        pml=float("pml" in row),
        clip=float("clip" in row),
        inclusion=1e-7 if row in ("ppcl-inclusion", "prolip") else 0.0,
        masked=1e-3 if row in ("ppcl-masked", "prolip") else 0.0,
        vib=0.0 if row == "clip" else 1e-4,
        c=1000.0,
        eps=-20.0,
    )
