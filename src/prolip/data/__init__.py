"""Image-text data: everyone's files, procedural scenes, and the loader that trains from both."""

from prolip.data.batch import Batch, Preparation
from prolip.data.combined_loader import Together
from prolip.data.loader import Loader
from prolip.data.open import open_data
from prolip.data.sample import Bad, BadSampleError, Sample
from prolip.data.sample_errors import Tally, TooManyBadSamplesError
from prolip.data.source import Joined, Source
from prolip.data.sources.labeled import Labelled, open_labelled
from prolip.data.sources.tar_stream import Stream
from prolip.data.stream_loader import StreamLoader

__all__ = [
    "Bad",
    "BadSampleError",
    "Batch",
    "Joined",
    "Labelled",
    "Loader",
    "Preparation",
    "Sample",
    "Source",
    "Stream",
    "StreamLoader",
    "Tally",
    "Together",
    "TooManyBadSamplesError",
    "open_data",
    "open_labelled",
]
