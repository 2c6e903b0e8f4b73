"""`prolip calibrate`: match probabilities that mean something in search."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import Positional, arg

from prolip.cli.options import Json, print_json
from prolip.embeddings.embedder_config import EmbedderConfig
from prolip.evaluation.configs import CalibrateConfig


def calibrate(
    data: Annotated[Positional[str], arg(metavar="DATA")],
    out: str,
    embedder: EmbedderConfig,
    config: CalibrateConfig,
    captions: tuple[str, ...] | None = None,
    image: str | None = None,
    as_json: Json = False,
) -> None:
    """Calibrate match probabilities on held-out pairs, or on judgements, for searches in a database.

    Example: prolip calibrate held-out.parquet --model my-model --out database

    Args:
        data: Images with captions that the model was not trained on: shards, .csv, .tsv, .parquet, COCO .json, a
            folder, scenes:hard.
        out: Folder or address of a database, or folder of a model: calibration.json is written there.
        captions: Fields of a tar (txt:lines, json:caption) or columns of a table. None: the usual ones.
        image: Field or column of the image, or COCO's folder of images.
    """
    from prolip.console import print_tables
    from prolip.data.open import open_data
    from prolip.embeddings.precomputed_embedder import open_embedder
    from prolip.evaluation import calibration as fitting
    from prolip.reports.calibration import make_tables
    from prolip.retrieval.calibration import CALIBRATION_FILE

    opened_embedder = open_embedder(embedder)
    fitting.require_calibrated_folder(out, opened_embedder.identity)
    source = open_data(data, captions=captions, image=image)
    calibration = fitting.calibrate(opened_embedder, source, config)
    storage = calibration.write(out)
    if as_json:
        print_json(calibration)
    else:
        print_tables(make_tables(calibration))
        print(f"{storage}/{CALIBRATION_FILE}")
