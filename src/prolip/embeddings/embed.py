"""`prolip embed`: data of any kind into a folder of embeddings, here or on a cluster; resumed where it stopped."""

from __future__ import annotations

import csv
import io
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, get_args

from prolip.checks import require_choice, require_count
from prolip.data.base_loader import require_limit
from prolip.data.open import is_generated, is_stream
from prolip.data.sample import BadSampleError
from prolip.data.sample_errors import Tally
from prolip.data.source import Source
from prolip.data.sources.columns import DamagedError
from prolip.data.sources.tar_stream import without_secrets
from prolip.embeddings.dataset import Embeddings
from prolip.embeddings.extra_columns import kinds_of
from prolip.embeddings.header import FILE, Header, Precision, Variances, What, is_embeddings, require_same
from prolip.embeddings.identity import model_identity
from prolip.embeddings.ray_workers import Cluster
from prolip.embeddings.sample_metadata import Facts, facts_of
from prolip.embeddings.storage import Folder, place_of
from prolip.embeddings.tasks import Tasks, open_tasks
from prolip.embeddings.worker import Outcome
from prolip.embeddings.worker_config import Plan
from prolip.extras import require
from prolip.model.prolip import ProLIP
from prolip.progress import bar
from prolip.weights.load import load

log = logging.getLogger("prolip.embeddings")

Engine = Literal["local", "ray"]
PART, BATCH, TEXT_BATCH = 4096, 64, 256
BAD_LIMIT = 0.1
BAD_FILE = "bad.csv"


def embed(
    model: str | Path | ProLIP,
    data: str | Path | Source,
    out: str | Path,
    *,
    captions: Sequence[str] | None = None,
    image: str | None = None,
    what: What = "both",
    variances: Variances | None = None,
    precision: Precision = "float32",
    part_size: int = PART,
    batch_size: int = BATCH,
    text_batch: int = TEXT_BATCH,
    bad_limit: float = BAD_LIMIT,
    device: str | None = None,
    engine: Engine = "local",
    workers: int | None = None,
    cpus: float = 1,
    gpus: float | None = None,
    progress: bool | None = None,
) -> Embeddings:
    """Write the embeddings of all pictures and captions to `out`, part by part: a folder, or an address in an object
    store (s3://, gs://, abfs://).

    A run that was stopped goes on at the first part that is missing. A folder of another model, of other data or of
    other options is refused.

    model:     a model, or what `prolip.load` takes. data: a source, or a path that `open_data` takes, or a stream; with
               what="texts" also a file of captions without pictures. captions, image: as for `open_data`.
    variances: None: full, or trace for a model that has none. precision: of the means.
    part_size: samples in a part, lost at most when a run is killed; a stream has a part for each shard.
    bad_limit: bad samples are left out and told in bad.csv; more than this share of them is an error.
    engine:    ray: on the cluster of RAY_ADDRESS, or on this machine alone.
    workers:   on ray: as many, with `cpus` and `gpus` each. None: as many as fit; a GPU each if there are any.
    """
    require("pyarrow", "data")
    require_choice(engine, get_args(Engine), "engine")
    for name, count in (("part_size", part_size), ("batch_size", batch_size), ("text_batch", text_batch)):
        require_count(count, name)
    require_limit(bad_limit)
    plan = Plan(
        model=_name(model), data=data.name if isinstance(data, Source) else _whole_path(str(data)),
        captions=None if captions is None else tuple(captions), what=what,
        image=_whole_path(image) if image and _names_folder(str(data)) else image,
        part_size=part_size, batch_size=batch_size, text_batch=text_batch, device=device, place=place_of(out),
    )  # fmt: skip
    if engine == "ray" and (isinstance(model, ProLIP) or isinstance(data, Source)):
        raise ValueError(
            "on ray, say the model and the data by name or path: the workers open them themselves"
        )
    opened = model if isinstance(model, ProLIP) else load(model, device=device).eval()
    tasks = open_tasks(data if isinstance(data, Source) else plan.data, captions, image, what, part_size)
    header = _begin(plan, opened, tasks, variances, precision)
    run = _engine(engine, plan, opened, tasks, header, Cluster(workers, cpus, gpus))
    try:
        _follow(run, tasks, Embeddings(plan.place, header), bad_limit, progress)
    except BaseException:
        with suppress(ValueError, OSError):  # what went wrong first is what must be told
            _tell(Embeddings(plan.place, header))
        raise
    done = Embeddings(plan.place, header)
    _tell(done)
    if done.missing:
        raise OSError(
            f"{len(done.missing)} parts were written where this machine can't see them: {plan.place} must be the same "
            "folder on all machines of the cluster"
        )
    return done


Run = Callable[[Sequence[int], Callable[[int], None]], Iterable[Outcome]]
"""Numbers of tasks, and whom to tell of progress -> what became of each, in any order."""


def _engine(engine: Engine, plan: Plan, model: ProLIP, tasks: Tasks, header: Header, cluster: Cluster) -> Run:
    return cluster.run(plan, header) if engine == "ray" else plan.worker_of(model, tasks, header).run


def _begin(
    plan: Plan, model: ProLIP, tasks: Tasks, variances: Variances | None, precision: Precision
) -> Header:
    """The header of the folder: written now, or found there and the same but for extra columns, which stay."""
    config = model.config
    uncertain = "none" not in (config.image.uncertainty, config.text.uncertainty)
    temperature = None if model.bias is None else model.temperature
    old = Header.read(plan.place) if is_embeddings(plan.place) else None
    header = Header(
        model=plan.model, identity=model_identity(model), dim=config.embed_dim,
        scale=None if temperature is None else temperature.scale.item(),
        bias=None if temperature is None else temperature.bias.item(),
        variances=variances or ("full" if uncertain else "trace"), precision=precision, what=plan.what,
        data=without_secrets(plan.data),
        captions=plan.captions, image=plan.image, fingerprint=tasks.fingerprint(), part_size=plan.part_size,
        parts=len(tasks), columns=kinds_of(_peeked(tasks)) if old is None else old.columns,
    )  # fmt: skip
    if old is None and any(name.startswith("part-") for name in plan.place.names()):
        raise ValueError(
            f"{plan.place} holds parts of embeddings without their {FILE}: remove them, or choose another folder"
        )
    if old is not None:
        require_same(old, header, plan.place)
        if isinstance(plan.place, Folder):
            plan.place.clean()
        return old
    header.write(plan.place)
    return header


def _peeked(tasks: Tasks) -> Iterator[Facts]:
    """What a few good samples tell."""
    for sample in tasks.peek():
        with suppress(BadSampleError):
            yield facts_of(sample)


def _follow(run: Run, tasks: Tasks, found: Embeddings, bad_limit: float, progress: bool | None) -> None:
    """Do what is missing, with a bar. Shards that were broken are tried again: they may have been mended."""
    tally, missing = Tally(), found.missing
    for part in found.numbers:
        try:
            one = found.footer(part).tally()
        except DamagedError as error:
            log.warning("made again: %s", error)
            missing.append(part)
            continue
        if one.broken:
            missing.append(part)
        else:
            tally.merge(one)
    missing.sort()
    shards = len(tasks) if tasks.samples is None else math.inf
    total = None if tasks.samples is None else sum(tasks.size(task) or 0 for task in missing)
    with bar(f"embedding {tasks.name}", total, "samples", progress) as advance:
        for outcome in run(missing, advance):
            tally.add(outcome.tried, outcome.bads)
            tally.check(bad_limit, shards)
    tally.check(bad_limit, shards, final=True)


def _tell(done: Embeddings) -> None:
    """What was left out: bad.csv has a row for each bad sample."""
    rows = [(part, number, *bad) for part, number, bad in done.bads()]
    if rows or BAD_FILE in done.place.names():
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerows([("part", "number", "reason", "where", "detail"), *rows])
        done.place.write(BAD_FILE, lambda file: file.write(text.getvalue().encode()))
    if misfits := done.misfits():
        told = ", ".join(f"{name} {count:,}" for name, count in misfits.most_common())
        log.warning("%s: values that are not of their column's type were left out: %s", done.place, told)


def _name(model: str | Path | ProLIP) -> str:
    """What `load` takes, wherever it is called; of a model in memory what it says of itself, which is for people."""
    if isinstance(model, ProLIP):
        return repr(model)
    path = Path(model).expanduser()
    return str(path.absolute()) if path.exists() else str(model)


def _names_folder(data: str) -> bool:
    """Whether `image` is a folder, as it is of COCO's captions, not a column or an ending."""
    return data.lower().endswith(".json")


def _whole_path(data: str) -> str:
    """The same data, from whichever folder it is opened."""
    return data if is_stream(data) or is_generated(data) else os.path.abspath(os.path.expanduser(data))
