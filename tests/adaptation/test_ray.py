"""Features that workers on a local Ray compute."""

import pytest
import torch

from prolip.adaptation import AdaptConfig
from prolip.adaptation.adapt import adapt
from prolip.embeddings.dataset import EmbeddingDataset
from prolip.model.prolip import ProLIP
from tests.adaptation.pictures import write_shard

ray = pytest.importorskip("ray", reason="the extra ray is not installed")


@pytest.mark.slow
@pytest.mark.long
def test_features_by_ray_equal_those_of_one_process(nano_path, tmp_path):
    """Of images, captions and views, with a bad image and a blank caption; so do the trained heads."""
    data = write_shard(tmp_path / "a.tar", 40, bad={7}, blank={11})
    config = {
        "image_encoder": str(nano_path), "captions": ("json:caption",), "dim": 8, "batch_size": 16, "epochs": 2.0,
        "image_views": 1, "text_crops": 1, "progress": False,
    }  # fmt: skip
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        adapt(data, tmp_path / "ray", AdaptConfig(engine="ray", **config))
    finally:
        ray.shutdown()
    adapt(data, tmp_path / "local", AdaptConfig(**config))
    for name in ("image", "image-view-1", "text", "text-crop-1"):
        found, wanted = (
            EmbeddingDataset.open(tmp_path / engine / "features" / name) for engine in ("ray", "local")
        )
        assert len(found) > 0
        assert found.part_indices == wanted.part_indices
        for part in found.part_indices:
            assert found.read_part(part).equals(wanted.read_part(part))
    weights = [ProLIP.from_folder(tmp_path / engine / "model").state_dict() for engine in ("ray", "local")]
    assert all(torch.equal(weights[0][name], value) for name, value in weights[1].items())
