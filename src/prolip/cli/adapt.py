"""`prolip adapt`: a model of one's own on frozen encoders."""

from __future__ import annotations

from pathlib import Path

from tyro.conf import Positional

from prolip.adaptation.config import AdaptConfig
from prolip.cli.options import Data, Json, print_written


def adapt(data: Positional[Data], out: Path, config: AdaptConfig, as_json: Json = False) -> None:
    """Train heads with uncertainty on frozen encoders, from image-text pairs. An interrupted run can be continued.

    Example: prolip adapt photos.csv --out my-model

    Args:
        out: Folder for features, training and the model: new, or of an earlier run with the same options, which is
            continued.
    """
    from prolip.adaptation.adapt import adapt as run_adaptation

    model = run_adaptation(data, out, config)
    if as_json:
        print_written([out], as_json)
    else:
        print(f'{model}\nthe model is in {out}: prolip.load("{out}")')
