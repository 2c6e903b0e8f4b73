"""Loading and converting weights: one adapter per format, the hub, ONNX export, shipped models."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prolip.weights.hub import make_model_card as make_model_card
    from prolip.weights.load import LoadedModel as LoadedModel
    from prolip.weights.load import list_shipped_models as list_shipped_models
    from prolip.weights.load import open_model as open_model
    from prolip.weights.onnx import export_onnx as export_onnx
    from prolip.weights.sentence_transformers_folder import (
        write_sentence_transformers_folder as write_sentence_transformers_folder,
    )
else:
    from prolip.lazy import export_lazily

    __getattr__, __dir__, __all__ = export_lazily(
        __name__,
        {
            "hub": ["make_model_card"],
            "load": ["LoadedModel", "list_shipped_models", "open_model"],
            "onnx": ["export_onnx"],
            "sentence_transformers_folder": ["write_sentence_transformers_folder"],
        },
    )
