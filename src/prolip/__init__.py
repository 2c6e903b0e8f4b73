"""Image and text embeddings that know what they don't know. The public names, resolved when first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prolip.checkpoint.hub import push as push
    from prolip.checkpoint.load import load as load
    from prolip.checkpoint.onnx import export_onnx as export_onnx
    from prolip.gaussian import Gaussian as Gaussian
    from prolip.measures import containment as containment
    from prolip.measures import containment_matrix as containment_matrix
    from prolip.measures import csd as csd
    from prolip.measures import csd_matrix as csd_matrix
    from prolip.measures import inclusion as inclusion
    from prolip.measures import inclusion_matrix as inclusion_matrix
    from prolip.measures import kl_divergence as kl_divergence
    from prolip.measures import kl_standard as kl_standard
    from prolip.measures import log_containment as log_containment
    from prolip.measures import log_containment_matrix as log_containment_matrix
    from prolip.measures import log_density as log_density
    from prolip.measures import log_density_matrix as log_density_matrix
    from prolip.measures import log_inclusion as log_inclusion
    from prolip.measures import log_inclusion_matrix as log_inclusion_matrix
    from prolip.model.create import create as create
    from prolip.model.prolip import ProLIP as ProLIP

__version__ = "0.1.0"

_HOME = {
    "Gaussian": "prolip.gaussian",
    "ProLIP": "prolip.model.prolip",
    "containment": "prolip.measures",
    "containment_matrix": "prolip.measures",
    "create": "prolip.model.create",
    "csd": "prolip.measures",
    "csd_matrix": "prolip.measures",
    "export_onnx": "prolip.checkpoint.onnx",
    "inclusion": "prolip.measures",
    "inclusion_matrix": "prolip.measures",
    "kl_divergence": "prolip.measures",
    "kl_standard": "prolip.measures",
    "load": "prolip.checkpoint.load",
    "log_containment": "prolip.measures",
    "log_containment_matrix": "prolip.measures",
    "log_density": "prolip.measures",
    "log_density_matrix": "prolip.measures",
    "log_inclusion": "prolip.measures",
    "log_inclusion_matrix": "prolip.measures",
    "push": "prolip.checkpoint.hub",
}

__all__ = sorted(_HOME)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """PEP 562: `import prolip` stays quick, torch comes with the first name that needs it."""
    if name not in _HOME:
        raise AttributeError(f"module 'prolip' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
