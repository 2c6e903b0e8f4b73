"""Adaptation: heads with uncertainty on the features of frozen encoders, from the user's own pairs"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prolip.adaptation.adapt import adapt_encoders as adapt_encoders
    from prolip.adaptation.adapt import adapt_model as adapt_model
    from prolip.adaptation.config import AdaptConfig as AdaptConfig
    from prolip.adaptation.features import Encoders as Encoders
else:
    from prolip.lazy import export_lazily

    __getattr__, __dir__, __all__ = export_lazily(
        __name__,
        {"adapt": ["adapt_encoders", "adapt_model"], "config": ["AdaptConfig"], "features": ["Encoders"]},
    )
