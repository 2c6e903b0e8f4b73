"""Training: the same mathematics on one core or many GPUs, resumable to the bit."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prolip.training.config import CheckpointConfig as CheckpointConfig
    from prolip.training.config import DataConfig as DataConfig
    from prolip.training.config import HeldOutConfig as HeldOutConfig
    from prolip.training.config import LogConfig as LogConfig
    from prolip.training.config import MaskingConfig as MaskingConfig
    from prolip.training.config import ModelSpec as ModelSpec
    from prolip.training.config import NonFinitePolicy as NonFinitePolicy
    from prolip.training.config import OptimizerConfig as OptimizerConfig
    from prolip.training.config import ParallelConfig as ParallelConfig
    from prolip.training.config import Stage as Stage
    from prolip.training.config import TrainConfig as TrainConfig
    from prolip.training.metric_writers import read_metrics as read_metrics
    from prolip.training.public import train as train
    from prolip.training.recipes import load_recipe as load_recipe
else:
    from prolip.lazy import export_lazily

    __getattr__, __dir__, __all__ = export_lazily(
        __name__,
        {
            "config": [
                "CheckpointConfig",
                "DataConfig",
                "HeldOutConfig",
                "LogConfig",
                "MaskingConfig",
                "ModelSpec",
                "NonFinitePolicy",
                "OptimizerConfig",
                "ParallelConfig",
                "Stage",
                "TrainConfig",
            ],
            "metric_writers": ["read_metrics"],
            "public": ["train"],
            "recipes": ["load_recipe"],
        },
    )
