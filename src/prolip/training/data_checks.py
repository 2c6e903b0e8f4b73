"""Checks of a run's data before its first step, so that a run doesn't fail after hours in a later stage."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from prolip.data.feature_pairs import is_feature_address
from prolip.data.open import is_stream
from prolip.data.sample import BadSampleError, Sample
from prolip.data.source import evenly_spaced
from prolip.storage.addresses import redact_secrets
from prolip.training.config import DataConfig, TrainConfig
from prolip.training.data_setup import open_source, open_stream

NUM_PROBES = 100
"""Samples of a source that are read to find out what it has."""


def require_general_captions(config: TrainConfig) -> None:
    """Raise a ValueError if a stage needs more general captions, and its data has none.

    Args:
        config: The run; its data is opened, and some samples of it are read.

    Raises:
        ValueError: No sample that was read has a more general caption; the message names the stage and its data.
    """
    masking = config.masking
    if masking.method != "general" or not masking.text_fraction:
        return
    found: dict[tuple[str, ...], bool] = {}
    for number, stage in enumerate(config.stages, start=1):
        sources = stage.source or config.data.source
        if not stage.objective.masked or not sources:
            continue
        if sources not in found:
            found[sources] = any(has_general_captions(source, config.data) for source in sources)
        if not found[sources]:
            raise ValueError(
                f"masking.method is general, but the data of stage {number} of {len(config.stages)}, "
                f"{', '.join(map(redact_secrets, sources))}, has no more general captions. scenes have them with "
                "general=true, other samples in a list `general` of their json, next to their captions "
                "(docs/data.md). Otherwise set --masking.method mask, drop or crop"
            )


def has_general_captions(source: str, data: DataConfig) -> bool:
    """Whether one of the first or of evenly spaced samples has a more general caption.

    Args:
        source: Address of data.
        data: How to read it.

    Returns:
        False for features, which have no captions to mask.
    """
    if is_feature_address(source):
        return False
    samples = _iter_stream(source, data) if is_stream(source) else _iter_files(source, data)
    return any(any(sample.general_captions) for sample in samples)


def _iter_files(address: str, data: DataConfig) -> Iterator[Sample]:
    """Samples that are evenly spaced over files or generated data, without bad ones."""
    source = open_source(address, data)
    for index in evenly_spaced(len(source), NUM_PROBES):
        try:
            yield source.read(int(index))
        except BadSampleError:
            continue


def _iter_stream(address: str, data: DataConfig) -> Iterator[Sample]:
    """The first samples of a stream, without bad ones."""
    first = islice(open_stream(address, data).read(0), NUM_PROBES)
    return (sample for sample in first if isinstance(sample, Sample))
