"""EmbedConfig: options of `embed` and of `prolip embed`; free of torch, for `--help`."""

from __future__ import annotations

from dataclasses import dataclass

from prolip.checks import require_fraction, require_positive_int
from prolip.choices import Decoding, Engine, Modality, Precision, Variances
from prolip.configs import Advanced, make_tuples, require_field_types


@dataclass(frozen=True, kw_only=True)
class EmbedConfig:
    """How data is embedded."""

    captions: tuple[str, ...] | None = None
    """Fields of a tar (txt, txt:lines, json:caption) or columns of a table. None: the usual ones."""
    image: str | None = None
    """Field or column of the image, or COCO's folder of images."""
    modality: Modality | None = None
    """Embed only images, or only texts; text also takes a file of captions alone (.txt, .csv, .parquet, .json). None:
    both."""
    variances: Variances | None = None
    """full: the log-variance of every dimension. trace: the sum of the variances, which is enough for CSD but not for
    inclusion, in half the space. None: full, if the model has variances."""
    precision: Precision = "float32"
    """Precision of the means. float16 takes half the space and changes the fourth digit."""
    decode: Decoding = "exact"
    """exact: the model's own pixels. fast: decode a large JPEG at a fraction of its size, at least twice what the model
    sees: more than twice as fast at 1280 x 960, and means change a little (docs/embed.md)."""
    batch_size: int = 64
    """Images per batch."""
    max_bad_fraction: float = 0.1
    """Fail if a larger fraction of samples is bad; else those are skipped and listed in errors.csv."""
    device: str | None = None
    """cpu, cuda, ... None: a GPU if there is one."""
    engine: Engine = "local"
    """local: in this process. ray: on the cluster at RAY_ADDRESS, or with Ray on this machine (extra ray)."""
    part_size: Advanced[int] = 4096
    """Samples per file; at most one file is lost if the run is killed. A stream has one file per shard."""
    text_batch_size: Advanced[int] = 256
    """Texts per batch."""
    ray_workers: Advanced[int | None] = None
    """With ray: processes that hold the model. None: as many as fit."""
    ray_cpus: Advanced[float] = 1
    """With ray: CPUs per process."""
    ray_gpus: Advanced[float | None] = None
    """With ray: GPUs per process. None: one, if there are any."""
    progress: Advanced[bool | None] = None
    """Show a progress bar. None: if stderr is a terminal."""

    def __post_init__(self) -> None:
        """Raise ValueError if a value is invalid, or has no effect."""
        make_tuples(self)
        require_field_types(self)
        for name in ("batch_size", "part_size", "text_batch_size"):
            require_positive_int(getattr(self, name), name)
        require_fraction(self.max_bad_fraction, "max_bad_fraction")
        if self.ray_workers is not None:
            require_positive_int(self.ray_workers, "ray_workers")
        if not self.ray_cpus > 0 or (self.ray_gpus is not None and not self.ray_gpus >= 0):
            raise ValueError(
                "a Ray process needs more than 0 CPUs and at least 0 GPUs: ray_cpus and ray_gpus can't be "
                f"{self.ray_cpus} and {self.ray_gpus}"
            )
        if self.modality == "text" and self.decode != "exact":
            raise ValueError("decode has no effect with modality text, which reads no images: leave it out")
        if self.engine == "local" and (self.ray_workers, self.ray_cpus, self.ray_gpus) != (None, 1, None):
            raise ValueError(
                "ray_workers, ray_cpus and ray_gpus have no effect without engine ray: leave them out"
            )
