"""`prolip filter`: the story, from embeddings or raw data to what is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from prolip.checks import require_choice, require_count, some
from prolip.data.sample_errors import Tally
from prolip.data.source import Source, fingerprint_of
from prolip.embeddings.dataset import Embeddings
from prolip.embeddings.embed import BAD_FILE, BAD_LIMIT, BATCH, embed
from prolip.embeddings.header import Precision, Variances, is_embeddings
from prolip.embeddings.storage import Folder, place_of
from prolip.files import remove_leftovers, write_json
from prolip.filtering.criteria import By, Criterion, criterion
from prolip.filtering.datacomp_ids import all_have_uids, write_ids
from prolip.filtering.duplicates import Duplicates, find_twins
from prolip.filtering.members import require_readable
from prolip.filtering.score_cache import Scores, make_scores
from prolip.filtering.scores import columns_of
from prolip.filtering.selection import Selection
from prolip.filtering.shard_writer import claim, write_shards
from prolip.filtering.subset import write_subset
from prolip.filtering.summary import Account, take_account
from prolip.filtering.threshold import Cut, find_cut, require_share
from prolip.model.prolip import ProLIP

Output = Literal["ids", "parquet", "shards"]
SHARD = 10_000


@dataclass(frozen=True, eq=False)
class Filtered:
    """What was decided, and what was written. bads: samples that could not be embedded, by reason."""

    embeddings: Embeddings
    selection: Selection
    account: Account
    bads: Tally
    summary: dict[str, Any]
    paths: list[Path]


def filter_pairs(
    source: str | Path | Source,
    out: str | Path,
    *,
    keep: float,
    by: By = "csd",
    model: str | Path | ProLIP | None = None,
    captions: Sequence[str] | None = None,
    image: str | None = None,
    variances: Variances | None = None,
    precision: Precision | None = None,
    batch_size: int | None = None,
    bad_limit: float | None = None,
    duplicates: Duplicates | None = None,
    alike: float = 0.97,
    to: Sequence[Output] | None = None,
    shard_size: int = SHARD,
    truth: str | None = None,
    device: str | None = None,
    progress: bool | None = None,
) -> Filtered:
    """Keep the best share of the pairs by a score, exactly; write what is kept, and filter.json.

    source:     a folder of embeddings, or data of any kind, which is embedded into `out`/embeddings first, by `model`.
    keep:       share of the samples. A sample with several captions counts by the one that fits best.
    captions, image, variances, precision, batch_size, bad_limit, device: as for `embed`; None: its own. They are for
                data that isn't embedded yet.
    duplicates: of those that are alike, by the cosine of their means, the best stays. None: they are not looked for.
    to:         None: parquet, and ids if there are uids.
    truth:      an extra column that is true for right pairs: how well does what is kept agree?

    A run that was stopped goes on; another score needs no second look at the embeddings. `out` is for one source.
    """
    judge, place = criterion(by), place_of(out)
    if not isinstance(place, Folder):
        raise ValueError(f"{place} is an address, and what is kept is written to a folder of this machine")
    folder = place.path
    _check(keep, duplicates, alike, to, shard_size)
    data = None if isinstance(source, Source) else str(source)
    if data is not None and is_embeddings(data):
        _refuse_options(
            data, model=model, captions=captions, image=image, variances=variances, precision=precision,
            batch_size=batch_size, bad_limit=bad_limit, device=device,
        )  # fmt: skip
        embeddings = Embeddings.open(data)
        data = embeddings.header.data
    else:
        if data is None and "shards" in (to or ()):
            raise ValueError(
                "a source in memory can't be opened again for new shards: name the data by its path"
            )
        if by == "inclusion" and variances == "trace":
            raise ValueError(f"by inclusion needs {judge.needs}: leave variances out")
        embeddings = embed(
            _require_model(model, source), source, folder / "embeddings", captions=captions, image=image,
            variances=variances, precision=precision or "float32", batch_size=batch_size or BATCH,
            bad_limit=BAD_LIMIT if bad_limit is None else bad_limit, device=device, progress=progress,
        )  # fmt: skip
    _require_column(embeddings, truth)
    if not embeddings.numbers or not len(embeddings):
        raise ValueError(
            f"not one sample of {embeddings.header.data} could be embedded: see {embeddings.place}/{BAD_FILE}"
        )
    if "shards" in (to or ()):
        require_readable(data or embeddings.header.data)
    remove_leftovers(folder)
    selection = _selected(embeddings, folder, judge, keep, duplicates, alike, progress)
    account = take_account(selection, truth)
    asked = {"by": by, "keep": keep, "duplicates": duplicates, "alike": alike if duplicates else None}
    told = {**asked, "identity": embeddings.header.identity, "fingerprint": embeddings.header.fingerprint}
    if "shards" in (to or ()):  # before anything is written: the folder may be another selection's
        digest = fingerprint_of(*(embeddings.footer(number).digest for number in embeddings.numbers))
        claim(folder / "shards", {**told, "digest": digest, "size": shard_size, "kept": account.kept})
    paths = list(_write(to, folder, selection, embeddings, data, account.kept, shard_size, progress))
    bads = embeddings.tally()
    summary = {
        **told,
        "data": embeddings.header.data,
        "model": embeddings.header.model,
        **_numbers(selection, account, bads),
        "written": [path.name for path in paths],
    }
    paths.append(write_json(folder / "filter.json", summary))
    return Filtered(embeddings, selection, account, bads, summary, paths)


def _selected(
    embeddings: Embeddings, folder: Path, judge: Criterion, keep: float, duplicates: Duplicates | None, alike: float,
    progress: bool | None,
) -> Selection:  # fmt: skip
    """What is kept: scores, the cut among them, near-duplicates above it."""
    scores = make_scores(embeddings, folder / "scores", progress)
    cut = _cut(scores, judge, keep, embeddings)
    twins = None if duplicates is None else find_twins(
        embeddings, scores, judge, cut, kind=duplicates, alike=alike, scratch=folder
    )  # fmt: skip
    return Selection(scores, judge, cut, twins)


def _check(
    keep: float, duplicates: str | None, alike: float, to: Sequence[str] | None, shard_size: int
) -> None:
    """Before hours of work, not after."""
    require_share(keep)
    if not 0 < alike <= 1:
        raise ValueError(f"alike must be a cosine above 0 and at most 1, not {alike!r}")
    require_count(shard_size, "shard_size")
    if duplicates is not None:
        require_choice(duplicates, get_args(Duplicates), "duplicates")
    for one in to or ():
        require_choice(one, get_args(Output), "to")


def _refuse_options(data: str, **options: object) -> None:
    """What says how to embed means nothing for embeddings."""
    if given := [name for name, value in options.items() if value is not None]:
        raise ValueError(f"{data} is embedded already: leave out {', '.join(given)}")


def _require_model(model: str | Path | ProLIP | None, source: object) -> str | Path | ProLIP:
    if model is None:
        raise ValueError(
            f"{source} is no folder of embeddings, so that a model is needed to embed it: say --model"
        )
    return model


def _require_column(embeddings: Embeddings, truth: str | None) -> None:
    if truth is not None and truth not in (columns := columns_of(embeddings.header)):
        raise ValueError(f"there is no column {truth!r} to compare with; there is {some(columns, 30)}")


def _cut(scores: Scores, judge: Criterion, keep: float, embeddings: Embeddings) -> Cut:
    cut = find_cut(lambda: (best.score for best in scores.best(judge)), keep)
    if cut.none == cut.total:
        raise ValueError(
            f"not one of {cut.total:,} samples of {embeddings.place} has a score by {judge.name}: "
            f"it needs {judge.needs}"
        )
    return cut


def _write(
    to: Sequence[Output] | None, folder: Path, selection: Selection, embeddings: Embeddings, data: str | None,
    kept: int, size: int, progress: bool | None,
) -> Iterator[Path]:  # fmt: skip
    asked = to or (("parquet", "ids") if all_have_uids(selection) else ("parquet",))
    if "ids" in asked:
        yield write_ids(folder / "ids.npy", selection)
    if "parquet" in asked:
        yield write_subset(folder / "subset.parquet", selection)
    if "shards" in asked:
        write_shards(
            folder / "shards", selection, embeddings, data=data or embeddings.header.data, kept=kept, size=size,
            progress=progress,
        )  # fmt: skip
        yield folder / "shards"


def _numbers(selection: Selection, account: Account, bads: Tally) -> dict[str, Any]:
    score = selection.cut.score
    value = None if score is None or not np.isfinite(score) else selection.criterion.sign * score + 0.0
    return {
        "samples": account.total,
        "kept": account.kept,
        "cut": value,
        **account.as_dict(),
        "bad": dict(bads.reasons),
        "recall_of_cells": None if selection.twins is None else selection.twins.recall,
    }
