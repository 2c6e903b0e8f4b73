import json
from dataclasses import replace

import pytest

import prolip
from prolip.training import trainer
from prolip.training.config import CheckpointConfig, DataConfig, HeldOutConfig, LogConfig, ModelSpec
from prolip.training.recipes.nano import recipe
from prolip.training.tokenizer_setup import prepare_tokenizer
from tests.data.test_splits import write_table


def config(folder, out, **model):
    table = write_table(folder / "t", [(i, f"a zebra number {i}") for i in range(40)])
    return replace(
        recipe(), out=str(out), samples=64, batch_size=16,
        model=ModelSpec(**({"size": "nano", "tokenizer": "train"} | model)),
        data=DataConfig(source=(table,), workers=0), held_out=HeldOutConfig(),
        checkpoint=CheckpointConfig(every_steps=2), log=LogConfig(display="none", tensorboard=False),
    )  # fmt: skip


def test_a_run_trains_its_tokenizer_on_its_captions(tmp_path):
    run = trainer.train(config(tmp_path, tmp_path / "run"))
    model = prolip.load(run, device="cpu")
    assert model.tokenizer.decode(model.tokenize(["a zebra"])) == ["a zebra"]
    assert len(model.tokenizer.encode("zebra")) == 1
    assert model.config.text.tokenizer.context_length == 16


def test_a_resumed_run_reads_it_from_its_folder(tmp_path):
    settings = config(tmp_path, tmp_path / "run")
    run = trainer.train(settings)
    first = prepare_tokenizer(settings, run, resume=False)
    stored = json.loads((run / "tokenizer.json").read_text())
    stored["decoder"] = None  # so that it can be told from a new one
    (run / "tokenizer.json").write_text(json.dumps(stored))
    again = prepare_tokenizer(settings, run, resume=True)
    assert json.loads(again.copy_backend().to_str())["decoder"] is None
    assert again.encode("a zebra number 3") == first.encode("a zebra number 3")


def test_weights_keep_their_own_tokenizer(tmp_path):
    settings = config(tmp_path, tmp_path / "run", pretrained="scenes-tiny")
    with pytest.raises(ValueError, match="scenes-tiny belong"):
        trainer.train(settings)


def test_other_tokenizers_are_not_touched(tmp_path):
    assert prepare_tokenizer(config(tmp_path, tmp_path / "run", tokenizer="scenes"), tmp_path, False) is None
