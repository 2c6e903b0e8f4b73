"""A checkpoint of others runs no code: its list of tensors is read with an allow list."""

import json
import os
import pickle
import random

import pytest
import torch
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata

from prolip.training import checkpointing
from prolip.training.checkpoint_reader import METADATA_FILE, CheckpointReader
from prolip.training.checkpointing import CheckpointContent, load_checkpoint, save_checkpoint


class RunsCommand:
    """What an attacker pickles."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.fixture
def path(tmp_path):
    content = CheckpointContent(step=3, tensors={"a": torch.arange(6.0)}, rank_state={}, run_state={})
    return save_checkpoint(tmp_path / "checkpoints", content)


def replace_metadata(path, content):
    """As an attacker would: the checksum of the new file is right."""
    (path / METADATA_FILE).write_bytes(content)
    complete = json.loads((path / "complete.json").read_text())
    complete["files"][METADATA_FILE] = checkpointing.compute_checksum(path / METADATA_FILE)
    (path / "complete.json").write_text(json.dumps(complete))


def test_metadata_that_runs_a_command_is_refused(path, tmp_path):
    mark = tmp_path / "was_run"
    replace_metadata(path, pickle.dumps(Metadata({}, planner_data=RunsCommand(f"touch {mark}"))))
    with pytest.raises(ValueError, match=r"\.metadata contains (os|posix)\.system, .* could run code"):
        load_checkpoint(path, {"a": torch.zeros(6)})
    with pytest.raises(ValueError, match="could run code"):
        checkpointing.list_tensor_names(path, "")
    assert not mark.exists()


def test_tensors_that_torch_would_unpickle_are_refused(path):
    """torch reads what BytesStorageMetadata describes by plain unpickling."""
    replace_metadata(path, pickle.dumps(Metadata({"a": BytesStorageMetadata()})))
    with pytest.raises(ValueError, match="BytesStorageMetadata, which no list of tensors needs"):
        load_checkpoint(path, {"a": torch.zeros(6)})


@pytest.mark.parametrize("content", [b"", b"\x80", b"no pickle", pickle.dumps({"a": 1}), pickle.dumps(None)])
def test_metadata_that_is_no_list_of_tensors_is_an_error(path, content):
    replace_metadata(path, content)
    with pytest.raises(ValueError, match=r"\.metadata is damaged"):
        load_checkpoint(path, {"a": torch.zeros(6)})


def test_any_flipped_bit_of_the_metadata_is_a_clear_error_or_harmless(path):
    content = (path / METADATA_FILE).read_bytes()
    draw = random.Random(0)
    for _ in range(300):
        changed = bytearray(content)
        changed[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        (path / METADATA_FILE).write_bytes(changed)
        message = METADATA_FILE
        try:
            CheckpointReader(path).read_metadata()
        except ValueError as error:
            message = str(error)
        assert METADATA_FILE in message


def test_metadata_of_every_dtype_is_read(tmp_path):
    dtypes = (
        torch.float64,
        torch.float32,
        torch.bfloat16,
        torch.float16,
        torch.int64,
        torch.uint8,
        torch.bool,
    )
    tensors = {str(dtype): torch.arange(4).to(dtype) for dtype in dtypes}
    content = CheckpointContent(step=1, tensors=tensors, rank_state={}, run_state={})
    path = save_checkpoint(tmp_path, content)
    found = {name: torch.zeros_like(value) for name, value in tensors.items()}
    load_checkpoint(path, found)
    assert all(torch.equal(found[name], value) for name, value in tensors.items())
