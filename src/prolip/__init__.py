"""Image and text embeddings that know what they don't know. The public names, resolved when first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from prolip.weights.load import load as load
    from prolip.weights.onnx import export_onnx as export_onnx

__version__ = "0.1.0"

_HOME = {
    "Gaussian": "prolip.gaussian",
    "ProLIP": "prolip.model.prolip",
    "containment": "prolip.measures.public",
    "containment_matrix": "prolip.measures.public",
    "create": "prolip.model.create",
    "csd": "prolip.measures.public",
    "csd_matrix": "prolip.measures.public",
    "export_onnx": "prolip.weights.onnx",
    "inclusion": "prolip.measures.public",
    "inclusion_matrix": "prolip.measures.public",
    "kl_divergence": "prolip.measures.public",
    "kl_standard": "prolip.measures.public",
    "load": "prolip.weights.load",
    "log_containment": "prolip.measures.public",
    "log_containment_matrix": "prolip.measures.public",
    "log_density": "prolip.measures.public",
    "log_density_matrix": "prolip.measures.public",
    "log_inclusion": "prolip.measures.public",
    "log_inclusion_matrix": "prolip.measures.public",
}

__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first access (PEP 562): `import prolip` doesn't import torch.

    The value is stored in the module's globals, so that this runs once per name.
    """
    if name not in _HOME:
        raise AttributeError(f"module 'prolip' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Names of the module, including public names that have not been resolved yet: for `dir` and completion."""
    return sorted({*globals(), *__all__})
