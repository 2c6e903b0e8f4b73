"""Counts of bad samples by reason, with examples, and the limit on how many are tolerated."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from prolip.data.sample import Reason, SampleError

log = logging.getLogger("prolip.data")

MAX_EXAMPLES = 3
"""Bad samples of each reason that are kept as examples."""
WARM_UP_SAMPLES = 1000
"""Until so many samples were tried, the limit is a number, not a fraction: one bad of the first three means nothing."""


class TooManyBadSamplesError(ValueError):
    """More of the data is bad than `max_bad_fraction` allows."""


def make_unfillable_batch_error(tried: int, errors: Sequence[SampleError]) -> TooManyBadSamplesError:
    """Make the error for a batch that has no good sample, although too few were tried for `ErrorCounts.check`.

    Args:
        tried: samples tried for the batch.
        errors: records of the bad ones; at least one.

    Returns:
        The exception, to raise.
    """
    return TooManyBadSamplesError(
        f"A batch can't be filled: {len(errors):,} of {tried:,} samples tried for it are bad. "
        f"The first is {_format_error(errors[0])}. Repair the data: `prolip data check` lists what is wrong."
    )


class ErrorCounts:
    """Samples tried, bad ones by reason, and the first examples of each reason.

    tried:         good and bad samples together.
    reasons:       bad samples by reason.
    examples:      up to three bad samples of each reason.
    broken_shards: locations of the broken shards; a set, because a shard may be read more than once.
    """

    def __init__(self) -> None:
        self.tried = 0
        self.reasons: Counter[Reason] = Counter()
        self.examples: dict[Reason, list[SampleError]] = {}
        self.broken_shards: set[str] = set()

    @property
    def bad(self) -> int:
        """Bad samples of all reasons."""
        return self.reasons.total()

    def add(self, tried: int, errors: Iterable[SampleError]) -> None:
        """Count samples.

        Args:
            tried: good and bad samples together.
            errors: the bad ones among them.
        """
        self.tried += tried
        for error in errors:
            self.reasons[error.reason] += 1
            if error.reason == "broken shard":
                self.broken_shards.add(error.location)
            self._add_example(error)

    def merge(self, other: ErrorCounts) -> None:
        """Add the counts of another part of the data, for example of another rank; `other` is not changed."""
        self.tried += other.tried
        self.reasons.update(other.reasons)
        self.broken_shards |= other.broken_shards
        for examples in other.examples.values():
            for error in examples:
                self._add_example(error)

    def check(self, max_bad_fraction: float, num_shards: float = math.inf, *, final: bool = False) -> None:
        """Raise an error if too many samples are bad or too many shards are broken.

        Args:
            max_bad_fraction: 0 to 1, of the samples and of the shards. Until 1000 samples were tried, this fraction of
                1000 is tolerated.
            num_shards: number of shards of this rank; a float, because it may be an average over ranks. A broken shard
                counts as one bad sample, however many are lost with it, so shards are also counted separately; one
                broken shard is always tolerated. Infinite: broken shards are not limited.
            final: whether all samples were tried: then the limit is a fraction of what was tried, however few.

        Raises:
            TooManyBadSamplesError: If more is bad than that.
        """
        broken = len(self.broken_shards)
        if broken > max(1, max_bad_fraction * num_shards):
            raise TooManyBadSamplesError(
                f"{broken:,} of {num_shards:,.0f} shards are broken, more than max_bad_fraction={max_bad_fraction:g} "
                f"allows. For example {_format_error(self.examples['broken shard'][0])}. "
                "Repair the data, or raise max_bad_fraction."
            )
        if self.bad > max_bad_fraction * (self.tried if final else max(self.tried, WARM_UP_SAMPLES)):
            raise TooManyBadSamplesError(
                f"{self.bad:,} of {self.tried:,} samples ({self.bad / self.tried:.1%}) are bad, more than "
                f"max_bad_fraction={max_bad_fraction:g} allows: {self._format_counts()}. "
                f"For example {self._format_example()}. Repair the data, or raise max_bad_fraction."
            )

    def end_epoch(self, epoch: int, max_bad_fraction: float) -> None:
        """Log the summary if a sample was bad, then check the counts of the whole epoch.

        Args:
            epoch: number of the epoch, for the log.
            max_bad_fraction: see `check`.

        Raises:
            TooManyBadSamplesError: If more samples are bad. Broken shards were checked while they were read.
        """
        if self.bad:
            log.warning("epoch %d: %s", epoch, self.summary())
        self.check(max_bad_fraction, final=True)

    def summary(self) -> str:
        """Format a small text table: each reason, most frequent first, with count, fraction and an example."""
        head = f"{self.bad:,} of {self.tried:,} samples were bad"
        if not self.bad:
            return head
        width = max(map(len, self.reasons))
        rows = (
            f"  {reason:<{width}}  {count:>9,}  {count / self.tried:>6.2%}  {_format_error(self.examples[reason][0])}"
            for reason, count in self.reasons.most_common()
        )
        return "\n".join([head, *rows])

    def state_dict(self) -> dict[str, object]:
        """Return the counts as values that JSON can hold."""
        return {
            "tried": self.tried,
            "reasons": dict(self.reasons),
            "examples": {
                reason: [list(error) for error in errors] for reason, errors in self.examples.items()
            },
            "broken_shards": sorted(self.broken_shards),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace the counts by saved ones.

        Args:
            state: what `state_dict` returned.

        Raises:
            ValueError: If the state is malformed; then nothing changes.
        """
        try:
            tried = _check_count(state["tried"])
            reasons = Counter({_check_reason(name): _check_count(n) for name, n in state["reasons"].items()})
            examples = {
                _check_reason(name): [_parse_error(row) for row in rows]
                for name, rows in state["examples"].items()
            }
            broken_shards = {str(location) for location in state["broken_shards"]}
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"The error counts of the loader's saved state are invalid: {error!r}") from None
        if any(not examples.get(reason) for reason in reasons):
            raise ValueError(
                "The error counts of the loader's saved state are invalid: a reason has no example"
            )
        self.tried, self.reasons, self.examples, self.broken_shards = tried, reasons, examples, broken_shards

    def _add_example(self, error: SampleError) -> None:
        """Keep a bad sample as an example of its reason, if there are fewer than three."""
        examples = self.examples.setdefault(error.reason, [])
        if len(examples) < MAX_EXAMPLES:
            examples.append(error)

    def _format_counts(self) -> str:
        """The reasons with their counts in one line, most frequent first."""
        return ", ".join(f"{reason} {count:,}" for reason, count in self.reasons.most_common())

    def _format_example(self) -> str:
        """The first example of the most frequent reason, in one line."""
        most_frequent, _ = self.reasons.most_common(1)[0]
        return _format_error(self.examples[most_frequent][0])


def _format_error(error: SampleError, max_length: int = 300) -> str:
    """Format an error as one line, cut to `max_length` characters: its detail may be another library's long message."""
    text = " ".join(str(error).split())
    return text if len(text) <= max_length else text[: max_length - 3] + "..."


def _check_count(value: Any) -> int:
    """Return the value as it is; ValueError unless it is an integer of at least 0."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"a count must be an integer of at least 0, not {value!r}")
    return value


def _check_reason(name: Any) -> Reason:
    """Return the name as it is; ValueError unless it is a `Reason`."""
    if name not in get_args(Reason):
        raise ValueError(f"{name!r} is not a reason for a bad sample")
    reason: Reason = name
    return reason


def _parse_error(row: Any) -> SampleError:
    """A SampleError from [reason, location, detail] of a saved state; ValueError or TypeError if it is malformed."""
    reason, location, detail = row
    return SampleError(_check_reason(reason), str(location), str(detail))
