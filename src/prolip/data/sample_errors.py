"""What was left out, and why: counted, with examples, and a limit on how much of it is borne."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from prolip.data.sample import Reason, SampleError

log = logging.getLogger("prolip.data")

EXAMPLES = 3
FIRST = 1000
"""Samples until when the limit is a number, not a share: one bad sample among the first three means nothing yet."""


class TooManyBadSamplesError(ValueError):
    """More of the data is bad than `max_bad_fraction` allows."""


def make_unfillable_error(tried: int, bads: Sequence[SampleError]) -> TooManyBadSamplesError:
    """For a batch that found no good samples, however few were tried in all."""
    return TooManyBadSamplesError(
        f"a batch can't be filled: {len(bads):,} of {tried:,} samples tried for it are bad; "
        f"the first is {_short(bads[0])}; mend the data"
    )


class ErrorCounts:
    """Samples tried, bad ones by reason, and the first few examples of each reason."""

    def __init__(self) -> None:
        self.tried = 0
        self.reasons: Counter[Reason] = Counter()
        self.examples: dict[Reason, list[SampleError]] = {}
        self.broken: set[str] = set()  # shards, by name: a broken one may be met again

    @property
    def bad(self) -> int:
        return self.reasons.total()

    def add(self, tried: int, bads: Iterable[SampleError]) -> None:
        """tried: good and bad samples together."""
        self.tried += tried
        for bad in bads:
            self.reasons[bad.reason] += 1
            if bad.reason == "broken shard":
                self.broken.add(bad.location)
            self._keep(bad)

    def merge(self, other: ErrorCounts) -> None:
        """Add another tally's counts, say of another rank, to this one's."""
        self.tried += other.tried
        self.reasons.update(other.reasons)
        self.broken |= other.broken
        for examples in other.examples.values():
            for bad in examples:
                self._keep(bad)

    def check(self, limit: float, shards: float = math.inf, *, final: bool = False) -> None:
        """TooManyBadSamplesError if more than `limit` of what was tried is bad, or more than `limit` of the shards.

        limit:  a share, 0 to 1. Until 1000 samples were tried, as many as `limit` of 1000 are borne; at the end of an
                epoch (`final`), `limit` of what it had.
        shards: how many there are to go through. A broken one is one bad sample, however many are lost with it, so
                they are counted apart; one is always borne.
        """
        lost = len(self.broken)
        if lost > max(1, limit * shards):
            raise TooManyBadSamplesError(
                f"{lost:,} of {shards:,.0f} shards are broken, more than max_bad_fraction={limit:g} allows; for example "
                f"{_short(self.examples['broken shard'][0])}; mend the data, or raise max_bad_fraction"
            )
        if self.bad > limit * (self.tried if final else max(self.tried, FIRST)):
            raise TooManyBadSamplesError(
                f"{self.bad:,} of {self.tried:,} samples ({self.bad / self.tried:.1%}) are bad, more than "
                f"max_bad_fraction={limit:g} allows: {self._counts()}; for example {self._example()}; "
                "mend the data, or raise max_bad_fraction"
            )

    def end_epoch(self, epoch: int, limit: float) -> None:
        """Log the summary if anything was bad, then the final check."""
        if self.bad:
            log.warning("epoch %d: %s", epoch, self.summary())
        self.check(limit, final=True)

    def summary(self) -> str:
        """A small table for people: each reason, commonest first, with its count, its share, and an example."""
        head = f"{self.bad:,} of {self.tried:,} samples were bad"
        if not self.bad:
            return head
        width = max(map(len, self.reasons))
        rows = (
            f"  {reason:<{width}}  {count:>9,}  {count / self.tried:>6.2%}  {_short(self.examples[reason][0])}"
            for reason, count in self.reasons.most_common()
        )
        return "\n".join([head, *rows])

    def state_dict(self) -> dict[str, Any]:
        """What JSON can hold."""
        return {
            "tried": self.tried,
            "reasons": dict(self.reasons),
            "examples": {reason: [list(bad) for bad in bads] for reason, bads in self.examples.items()},
            "broken": sorted(self.broken),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        try:
            tried = _count(state["tried"])
            reasons = Counter({_reason(name): _count(count) for name, count in state["reasons"].items()})
            examples = {
                _reason(name): [_bad(row) for row in rows] for name, rows in state["examples"].items()
            }
            broken = {str(where) for where in state["broken"]}
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"this is not the state of a tally: {error!r}") from None
        if any(not examples.get(reason) for reason in reasons):
            raise ValueError("this is not the state of a tally: a reason has no example")
        self.tried, self.reasons, self.examples, self.broken = tried, reasons, examples, broken

    def _keep(self, bad: SampleError) -> None:
        examples = self.examples.setdefault(bad.reason, [])
        if len(examples) < EXAMPLES:
            examples.append(bad)

    def _counts(self) -> str:
        return ", ".join(f"{reason} {count:,}" for reason, count in self.reasons.most_common())

    def _example(self) -> str:
        commonest, _ = self.reasons.most_common(1)[0]
        return _short(self.examples[commonest][0])


def _short(bad: SampleError, most: int = 300) -> str:
    """One line: the detail may hold a foreign library's message, or half a file."""
    text = " ".join(str(bad).split())
    return text if len(text) <= most else text[: most - 3] + "..."


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def _reason(name: Any) -> Reason:
    if name not in get_args(Reason):
        raise ValueError(f"{name!r} is no reason")
    reason: Reason = name
    return reason


def _bad(row: Any) -> SampleError:
    reason, where, detail = row
    return SampleError(_reason(reason), str(where), str(detail))
