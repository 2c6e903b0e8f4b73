"""Other libraries: sentence-transformers, transformers, mteb, vector databases, embedding-atlas."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prolip.integrations.atlas import write_atlas as write_atlas
    from prolip.integrations.mteb import MtebEncoder as MtebEncoder
    from prolip.integrations.sentence_transformers import GaussianEncoder as GaussianEncoder
    from prolip.integrations.transformers import ProLIPConfig as ProLIPConfig
    from prolip.integrations.transformers import ProLIPModel as ProLIPModel
    from prolip.integrations.transformers import ProLIPOutput as ProLIPOutput
    from prolip.integrations.transformers import ProLIPProcessor as ProLIPProcessor
    from prolip.integrations.transformers import register_with_transformers as register_with_transformers
    from prolip.integrations.vectors import make_item_vectors as make_item_vectors
    from prolip.integrations.vectors import make_query_vectors as make_query_vectors
    from prolip.integrations.vectors import write_vectors as write_vectors
else:
    from prolip.lazy import export_lazily

    __getattr__, __dir__, __all__ = export_lazily(
        __name__,
        {
            "atlas": ["write_atlas"],
            "mteb": ["MtebEncoder"],
            "sentence_transformers": ["GaussianEncoder"],
            "transformers": [
                "ProLIPConfig",
                "ProLIPModel",
                "ProLIPOutput",
                "ProLIPProcessor",
                "register_with_transformers",
            ],
            "vectors": ["make_item_vectors", "make_query_vectors", "write_vectors"],
        },
    )
