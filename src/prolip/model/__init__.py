"""The network: configs, sizes, two towers (pixels or token ids to Gaussians), ProLIP, its folder."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prolip.model.config import ImageConfig as ImageConfig
    from prolip.model.config import InitConfig as InitConfig
    from prolip.model.config import ModelConfig as ModelConfig
    from prolip.model.config import TextConfig as TextConfig
    from prolip.model.config import TransformerConfig as TransformerConfig
    from prolip.model.prolip import ProLIP as ProLIP
    from prolip.model.resize import resize_model as resize_model
    from prolip.model.sizes import SIZES as SIZES
    from prolip.model.sizes import get_config as get_config
else:
    from prolip.lazy import export_lazily

    __getattr__, __dir__, __all__ = export_lazily(
        __name__,
        {
            "config": ["ImageConfig", "InitConfig", "ModelConfig", "TextConfig", "TransformerConfig"],
            "prolip": ["ProLIP"],
            "resize": ["resize_model"],
            "sizes": ["SIZES", "get_config"],
        },
    )
