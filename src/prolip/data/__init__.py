"""Image-text data: sources on disk, streams and generated scenes; resumable loaders."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prolip.data.batch import Batch as Batch
    from prolip.data.batch import Preprocessor as Preprocessor
    from prolip.data.combined_loader import CombinedLoader as CombinedLoader
    from prolip.data.config import LoaderConfig as LoaderConfig
    from prolip.data.config import StreamLoaderConfig as StreamLoaderConfig
    from prolip.data.labeled_fields import open_labeled_fields as open_labeled_fields
    from prolip.data.loader import Loader as Loader
    from prolip.data.open import open_data as open_data
    from prolip.data.sample import BadSampleError as BadSampleError
    from prolip.data.sample import Sample as Sample
    from prolip.data.sample import SampleError as SampleError
    from prolip.data.sample_errors import ErrorCounts as ErrorCounts
    from prolip.data.sample_errors import TooManyBadSamplesError as TooManyBadSamplesError
    from prolip.data.source import AnnotatedImages as AnnotatedImages
    from prolip.data.source import AnnotatedSource as AnnotatedSource
    from prolip.data.source import CaptionAnnotation as CaptionAnnotation
    from prolip.data.source import ConcatSource as ConcatSource
    from prolip.data.source import ImageAnnotation as ImageAnnotation
    from prolip.data.source import Source as Source
    from prolip.data.source import Subset as Subset
    from prolip.data.sources.foreground import occlude_center as occlude_center
    from prolip.data.sources.hierarimgs import build_hierarimgs as build_hierarimgs
    from prolip.data.sources.labeled import LabeledData as LabeledData
    from prolip.data.sources.labeled import open_labeled as open_labeled
    from prolip.data.sources.tar_stream import TarStream as TarStream
    from prolip.data.stream_loader import StreamLoader as StreamLoader
else:
    from prolip.lazy import export_lazily

    __getattr__, __dir__, __all__ = export_lazily(
        __name__,
        {
            "batch": ["Batch", "Preprocessor"],
            "combined_loader": ["CombinedLoader"],
            "config": ["LoaderConfig", "StreamLoaderConfig"],
            "loader": ["Loader"],
            "open": ["open_data"],
            "sample": ["BadSampleError", "Sample", "SampleError"],
            "sample_errors": ["ErrorCounts", "TooManyBadSamplesError"],
            "source": [
                "AnnotatedImages",
                "AnnotatedSource",
                "CaptionAnnotation",
                "ConcatSource",
                "ImageAnnotation",
                "Source",
                "Subset",
            ],
            "labeled_fields": ["open_labeled_fields"],
            "sources.foreground": ["occlude_center"],
            "sources.hierarimgs": ["build_hierarimgs"],
            "sources.labeled": ["LabeledData", "open_labeled"],
            "sources.tar_stream": ["TarStream"],
            "stream_loader": ["StreamLoader"],
        },
    )
