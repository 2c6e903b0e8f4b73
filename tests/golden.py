"""Paths of the golden data, computed by the public release; see tests/fixtures/README.md."""

import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

FIXTURES = Path(__file__).parent / "fixtures"


def altered(folder, out, edit_tensors=None, edit_config=None):
    """A copy of a model's folder with its tensors or its config changed."""
    shutil.copytree(folder, out)
    weights = next(path for path in out.glob("*model.safetensors"))
    config = next(path for path in out.glob("*config.json"))
    if edit_tensors:
        tensors = load_file(weights)
        edit_tensors(tensors)
        save_file(tensors, weights)
    if edit_config:
        content = json.loads(config.read_text())
        edit_config(content)
        config.write_text(json.dumps(content))
    return out
