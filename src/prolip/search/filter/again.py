"""The data that was embedded, opened again."""

from __future__ import annotations

from prolip.data.source import Source
from prolip.embed.stored import Embeddings
from prolip.embed.tasks import SourceTasks


def source_again(embeddings: Embeddings) -> Source:
    """An error if it is a stream, or has changed: a number would lead to another sample."""
    source = embeddings.source()
    if SourceTasks(source, embeddings.header.part_size).fingerprint() != embeddings.header.fingerprint:
        raise ValueError(f"{source.name} has changed since it was embedded: embed it again")
    return source
