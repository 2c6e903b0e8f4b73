"""ClusterSpec: the cluster whose hours `benchmarks scale` estimates; free of torch, for `--help`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """The cluster on which a pool is embedded."""

    gpus: int = 64
    """Number of GPUs of the cluster."""
    flops: float = 1.5e14
    """Floating-point operations per second that one GPU reaches in practice."""
    cores: int = 1024
    """Number of CPU cores of the cluster."""
    speed: float = 1.0
    """Speed of one core of the cluster relative to one of this machine."""
    network: float = 2.5e10
    """Bytes per second that the cluster reads from the pool's storage, in total."""
    disk: float = 8e9
    """Bytes per second written to or read from disks, in total."""
