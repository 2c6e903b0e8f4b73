"""Image and text embeddings that know what they don't know. The public names, resolved when first used."""

from prolip.version import __version__ as __version__

TYPE_CHECKING = False  # type checkers take it for True; typing takes a while to import

if TYPE_CHECKING:
    from prolip.adaptation.adapt import adapt as adapt
    from prolip.embeddings.embed import embed as embed
    from prolip.filtering.filter import filter_pairs as filter_pairs
    from prolip.gaussian import Gaussian as Gaussian
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
    from prolip.model.create import create as create
    from prolip.model.prolip import ProLIP as ProLIP
    from prolip.retrieval.index.build import index as index
    from prolip.retrieval.perplexity import perplexity as perplexity
    from prolip.retrieval.response import search as search
    from prolip.training.public import train as train
    from prolip.weights.load import load as load
    from prolip.weights.onnx import export_onnx as export_onnx
else:
    from prolip.lazy import export_lazily

    __getattr__, __dir__, __all__ = export_lazily(
        __name__,
        {
            "adaptation.adapt": ["adapt"],
            "embeddings.embed": ["embed"],
            "filtering.filter": ["filter_pairs"],
            "gaussian": ["Gaussian"],
            "measures.public": [
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
            "model.create": ["create"],
            "model.prolip": ["ProLIP"],
            "retrieval.index.build": ["index"],
            "retrieval.perplexity": ["perplexity"],
            "retrieval.response": ["search"],
            "training.public": ["train"],
            "weights.load": ["load"],
            "weights.onnx": ["export_onnx"],
        },
    )
