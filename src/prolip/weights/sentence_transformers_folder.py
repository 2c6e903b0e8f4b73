"""A model folder that sentence-transformers opens, too: its two small files name the class that reads it."""

from __future__ import annotations

from pathlib import Path

from prolip.files import atomic_write, write_json
from prolip.model.prolip import ProLIP

MODULE = "prolip.integrations.sentence_transformers.GaussianEncoder"
"""The class in modules.json. sentence-transformers imports it, if it is opened with trust_remote_code=True."""


def write_sentence_transformers_folder(model: ProLIP, folder: str | Path) -> Path:
    """Write a model folder with modules.json and config_sentence_transformers.json.

    Args:
        model: The model.
        folder: Created if need be.

    Returns:
        The folder. `prolip.load` reads it as any other, `SentenceTransformer(folder, trust_remote_code=True)` as well.
    """
    path = model.save_pretrained(folder)
    text = f'[\n  {{"idx": 0, "name": "0", "path": "", "type": "{MODULE}"}}\n]\n'
    atomic_write(path / "modules.json", lambda temporary: temporary.write_text(text, encoding="utf-8"))
    content = {"model_type": "SentenceTransformer", "similarity_fn_name": "cosine"}
    write_json(path / "config_sentence_transformers.json", content)
    return path
