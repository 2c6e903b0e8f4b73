"""Losses: PPCL, SigLIP, PML, CLIP, the vMF likelihood, inclusion, VIB, and the weighted sum that is trained."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prolip.losses.contrastive import LogitScaleBias as LogitScaleBias
    from prolip.losses.contrastive import clip as clip
    from prolip.losses.contrastive import pml as pml
    from prolip.losses.contrastive import ppcl as ppcl
    from prolip.losses.contrastive import siglip as siglip
    from prolip.losses.objective import GlobalBatch as GlobalBatch
    from prolip.losses.objective import LossTerms as LossTerms
    from prolip.losses.objective import MaskedPairs as MaskedPairs
    from prolip.losses.objective import Objective as Objective
    from prolip.losses.regularizers import inclusion as inclusion
    from prolip.losses.regularizers import vib as vib
    from prolip.losses.vmf_likelihood import LikelihoodTemperature as LikelihoodTemperature
    from prolip.losses.vmf_likelihood import likelihood as likelihood
    from prolip.losses.vmf_likelihood import nll as nll
    from prolip.losses.vmf_likelihood import one_sided as one_sided
else:
    from prolip.lazy import export_lazily

    __getattr__, __dir__, __all__ = export_lazily(
        __name__,
        {
            "contrastive": ["LogitScaleBias", "clip", "pml", "ppcl", "siglip"],
            "vmf_likelihood": ["LikelihoodTemperature", "likelihood", "nll", "one_sided"],
            "objective": ["GlobalBatch", "LossTerms", "MaskedPairs", "Objective"],
            "regularizers": ["inclusion", "vib"],
        },
    )
