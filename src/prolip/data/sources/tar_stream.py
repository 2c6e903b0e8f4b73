"""TarStream: WebDataset shards from a command or a network address, read once from front to back."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence

from prolip.data.sample import BadSampleError, Sample, SampleError
from prolip.data.source import compute_fingerprint
from prolip.data.sources.sample_fields import SampleFields, require_unique_extensions
from prolip.data.sources.tar import DEFAULT_CAPTIONS, DEFAULT_IMAGES, expand_braces, expand_paths
from prolip.data.sources.tar_format import StreamReader, TarDamageError, TarSample, iter_samples
from prolip.storage.addresses import is_remote, parse_address, redact_secrets
from prolip.storage.streams import UnreachableError, open_stream

log = logging.getLogger("prolip.data")
RETRY_SECONDS = (1.0, 5.0, 30.0)
"""Waits before a shard of which not one byte came is tried again."""


class TarStream:
    """Tars that can only be read in order.

    Addresses are not checked until they are read; paths on disk must exist.

    Args:
        pattern: an address (s3://, gs://, az://, http(s)://, hf://, "pipe:command", see `parse_address`), or paths on
            disk; with ranges in braces, each of which gives shards; or a list of them.
        captions, images: see `SampleFields`.

    Raises:
        FileNotFoundError: If a path on disk does not exist, or if no shards were given.
        ValueError: If an address is of an unknown scheme.
    """

    def __init__(
        self,
        pattern: str | Sequence[str],
        captions: Sequence[str] = DEFAULT_CAPTIONS,
        images: Sequence[str] = DEFAULT_IMAGES,
    ) -> None:
        self.fields = SampleFields(captions, images)
        patterns = [pattern] if isinstance(pattern, str) else list(pattern)
        shards = (shard for one_pattern in patterns for shard in _expand_addresses(one_pattern))
        self.shards = tuple(dict.fromkeys(shards))  # each once
        if not self.shards:
            raise FileNotFoundError("no shards were given: the list of patterns is empty")
        self.name = redact_secrets(patterns[0]) + (f", and {len(patterns) - 1} more" if patterns[1:] else "")

    def fingerprint(self) -> str:
        """Return a digest of the addresses without secrets: a new signature doesn't change the data."""
        return compute_fingerprint(
            *(ascii(redact_secrets(shard)) for shard in self.shards), *self.fields.describe()
        )

    def read(self, shard: int, skip: int = 0) -> Iterator[Sample | SampleError]:
        """Iterate over the samples of a shard, in order, good and bad.

        A stream can't seek: skipped samples are read and thrown away, not decoded. A shard that ends early or is
        damaged has one last SampleError for everything that is lost.

        Args:
            shard: its index in `shards`.
            skip: number of samples, good and bad, to skip at the beginning.

        Returns:
            An iterator over samples, and errors in place of bad ones.

        Raises:
            OSError: If the shard can't be reached at all, after several tries. A network that is down must not count as
                bad data.
        """
        if skip < 0:
            raise ValueError(f"skip must be 0 or more, not {skip}")
        return self._iter_shard(self.shards[shard], skip)

    def _iter_shard(self, url: str, skip: int) -> Iterator[Sample | SampleError]:
        """`read` of the shard at an address. If not one byte comes, it waits and tries again, as RETRY_SECONDS says.

        OSError after the last try.
        """
        location = redact_secrets(url)
        for wait in (*RETRY_SECONDS, None):  # None: the last try
            try:
                with open_stream(url) as file:
                    for sample in iter_samples(StreamReader(file), skip):
                        yield self._make_sample(sample, f"{location}: {sample.key}")
                return
            except TarDamageError as error:
                if error.complete_samples >= skip:
                    yield SampleError("broken shard", location, str(error))
                return
            except UnreachableError as error:  # not one byte came, so nothing was delivered twice
                if wait is None:
                    raise OSError(
                        f"{location}: {error}, tried {len(RETRY_SECONDS) + 1} times. Repair the shard, or leave it out."
                    ) from None
                log.warning("%s: %s; retrying in %g s", location, error, wait)
                time.sleep(wait)

    def _make_sample(self, sample: TarSample, location: str) -> Sample | SampleError:
        """Make a sample from its files; if it is bad, the record of why."""
        try:
            require_unique_extensions(sample.extensions, location)
            return self.fields.make_sample(sample.key, location, sample.files)
        except BadSampleError as error:
            return error.record


def _expand_addresses(pattern: str) -> list[str]:
    """List the shards of an address with braces, or of a pattern of paths on disk; each in its one spelling.

    ValueError, with secrets redacted, if the scheme or the braces are wrong; FileNotFoundError if a path is missing.
    """
    if not is_remote(pattern):
        return expand_paths(pattern)
    pattern = parse_address(pattern, "stream").url
    try:
        return expand_braces(pattern)
    except ValueError as error:
        raise ValueError(redact_secrets(str(error))) from None
