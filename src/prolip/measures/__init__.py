"""Measures on Gaussians: formulas, all-pairs kernels, the public functions, nearest neighbors, pool perplexity."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prolip.measures.nearest import find_nearest as find_nearest
    from prolip.measures.nearest import similarity as similarity
    from prolip.measures.perplexity import log_perplexity as log_perplexity
    from prolip.measures.public import containment as containment
    from prolip.measures.public import containment_matrix as containment_matrix
    from prolip.measures.public import csd as csd
    from prolip.measures.public import csd_matrix as csd_matrix
    from prolip.measures.public import inclusion as inclusion
    from prolip.measures.public import inclusion_matrix as inclusion_matrix
    from prolip.measures.public import kl_divergence as kl_divergence
    from prolip.measures.public import kl_standard as kl_standard
    from prolip.measures.public import log_containment as log_containment
    from prolip.measures.public import log_containment_matrix as log_containment_matrix
    from prolip.measures.public import log_density as log_density
    from prolip.measures.public import log_density_matrix as log_density_matrix
    from prolip.measures.public import log_inclusion as log_inclusion
    from prolip.measures.public import log_inclusion_matrix as log_inclusion_matrix
else:
    from prolip.lazy import export_lazily

    __getattr__, __dir__, __all__ = export_lazily(
        __name__,
        {
            "nearest": ["find_nearest", "similarity"],
            "perplexity": ["log_perplexity"],
            "public": [
                "containment",
                "containment_matrix",
                "csd",
                "csd_matrix",
                "inclusion",
                "inclusion_matrix",
                "kl_divergence",
                "kl_standard",
                "log_containment",
                "log_containment_matrix",
                "log_density",
                "log_density_matrix",
                "log_inclusion",
                "log_inclusion_matrix",
            ],
        },
    )
