"""Image-text data: sources on disk, streams and generated scenes; resumable loaders."""

from prolip.data.batch import Batch, Preprocessor
from prolip.data.combined_loader import CombinedLoader
from prolip.data.loader import Loader
from prolip.data.open import open_data
from prolip.data.sample import BadSampleError, Sample, SampleError
from prolip.data.sample_errors import ErrorCounts, TooManyBadSamplesError
from prolip.data.source import AnnotatedSource, CaptionAnnotation, ConcatSource, Source, Subset
from prolip.data.sources.foreground import occlude_center
from prolip.data.sources.hierarimgs import build_hierarimgs
from prolip.data.sources.labeled import LabeledData, open_labeled
from prolip.data.sources.tar_stream import TarStream
from prolip.data.stream_loader import StreamLoader

__all__ = [
    "AnnotatedSource",
    "BadSampleError",
    "Batch",
    "CaptionAnnotation",
    "CombinedLoader",
    "ConcatSource",
    "ErrorCounts",
    "LabeledData",
    "Loader",
    "Preprocessor",
    "Sample",
    "SampleError",
    "Source",
    "StreamLoader",
    "Subset",
    "TarStream",
    "TooManyBadSamplesError",
    "build_hierarimgs",
    "occlude_center",
    "open_data",
    "open_labeled",
]
