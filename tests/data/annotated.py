"""Pictures with COCO-style instances, for tests."""

import json

import numpy as np
from PIL import Image

from prolip.data.sources.coco import make_annotation


def write_three(folder):
    """A picture with two segments (one a crowd), one without any, one whose file is of another size; instances.json.

    Returns the pictures, uint8 (3, 20, 30, 3), and the two masks.
    """
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 200, (3, 20, 30, 3), dtype=np.uint8)
    for number, picture in enumerate(pictures):
        Image.fromarray(picture if number < 2 else picture[:10]).save(folder / f"{number}.png")
    masks = np.zeros((2, 20, 30), dtype=bool)
    masks[0, 2:8, 3:9] = True
    masks[1, 5:12, 7:20] = True
    annotations = [
        make_annotation(masks[0], id=1, image_id=0, category_id=1),
        make_annotation(masks[1], id=2, image_id=0, category_id=1) | {"iscrowd": 1},
        make_annotation(masks[0], id=3, image_id=2, category_id=1),
    ]
    images = [{"id": n, "file_name": f"{n}.png", "height": 20, "width": 30} for n in range(3)]
    (folder / "instances.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    return pictures, masks
