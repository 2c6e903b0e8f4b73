"""SceneDatasetSpec: what `write_dataset` and `prolip data scenes` write; free of torch, for `--help`."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from prolip.checks import require_positive_int
from prolip.choices import WorldName

if TYPE_CHECKING:
    from prolip.scenes.world import World

VERSION = 5
"""Version of the layout and of the keys below a dataset's folder."""


@dataclass(frozen=True, kw_only=True)
class SceneDatasetSpec:
    """What `write_dataset` writes."""

    world: WorldName = "simple"
    """single: one object; simple: one or two, drawn cleanly; hard: up to three, in eight drawing styles; varied: simple
    with unequal shapes, colors and sizes; styled: simple in frequent, strong drawing styles."""
    image_size: int = 64
    """Height and width of the images in pixels, from 32 to 224."""
    num_train: int = 20_000
    """Training images."""
    num_test: int = 1000
    """Images of each evaluation set."""
    unseen: int = 0
    """Pairs of color and shape that no training image shows, with a task of their own."""
    shard_size: int = 1000
    """Images per tar."""
    seed: int = 0
    """Seed of the scenes; no test image is a training image."""
    false_fraction: float = 0.0
    """Fraction of training images whose caption is false, to test filters: then each has one caption, and `correct` in
    its json is the truth."""

    def __post_init__(self) -> None:
        """Raise ValueError (TypeError for the seed) unless all fields are valid."""
        from prolip.scenes.world import get_unseen_pairs, get_world, require_image_size

        get_world(self.world)
        require_image_size(self.image_size)
        for name in ("num_train", "num_test", "shard_size"):
            require_positive_int(getattr(self, name), name, maximum=10**9)
        operator.index(self.seed)
        get_unseen_pairs(self.unseen)
        if not 0 <= self.false_fraction < 1:
            raise ValueError(
                f"false_fraction must be at least 0 and less than 1, not {self.false_fraction!r}"
            )

    @property
    def distribution(self) -> World:
        """The distribution of the training scenes."""
        from prolip.scenes.world import get_world

        return get_world(self.world, self.unseen)

    def to_dict(self) -> Mapping[str, object]:
        """The content of scenes.json: version, all fields, and the pairs that are held out."""
        fields = asdict(self)
        names = {"version": VERSION, "world_name": fields.pop("world"), **fields}
        # through JSON: tuples become lists, as in a file that was read
        content: Mapping[str, object] = json.loads(
            json.dumps({**names, "unseen_pairs": sorted(self.distribution.unseen)})
        )
        return content
