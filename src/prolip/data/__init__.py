"""Image-text data: everyone's files, procedural scenes, and the loader that trains from both."""

from prolip.data.batch import Batch, Preprocessor
from prolip.data.combined_loader import CombinedLoader
from prolip.data.loader import Loader
from prolip.data.open import open_data
from prolip.data.sample import BadSampleError, Sample, SampleError
from prolip.data.sample_errors import ErrorCounts, TooManyBadSamplesError
from prolip.data.source import ConcatSource, Source
from prolip.data.sources.labeled import LabeledData, open_labeled
from prolip.data.sources.tar_stream import TarStream
from prolip.data.stream_loader import StreamLoader

__all__ = [
    "SampleError",
    "BadSampleError",
    "Batch",
    "ConcatSource",
    "LabeledData",
    "Loader",
    "Preprocessor",
    "Sample",
    "Source",
    "TarStream",
    "StreamLoader",
    "ErrorCounts",
    "CombinedLoader",
    "TooManyBadSamplesError",
    "open_data",
    "open_labeled",
]
