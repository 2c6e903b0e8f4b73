import shlex
from dataclasses import replace

import pytest

from prolip.losses.objective import Objective
from prolip.training import trainer
from prolip.training.config import DataConfig, MaskingConfig, Stage
from prolip.training.data_checks import has_general_captions, require_general_captions
from prolip.training.recipes import load_recipe
from prolip.training.recipes.nano import recipe
from tests.data.tar_files import write_tar
from tests.data.test_splits import write_table

GENERAL = "scenes:simple,size=32,length=50,general=true"


def test_miniature_refuses_data_without_general_captions_before_its_first_step(tmp_path):
    table = write_table(tmp_path / "t", [(i, f"text {i}") for i in range(40)])
    config = load_recipe("miniature").build_config(
        {"data.source": table, "samples": 320, "batch_size": 32, "out": tmp_path / "run"}
    )
    with pytest.raises(ValueError, match=r"stage 3 of 4, .*pairs.csv"):
        trainer.train(config)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_single_sample_with_general_captions_is_found(tmp_path):
    assert has_general_captions(GENERAL, DataConfig())
    assert not has_general_captions("scenes:simple,size=32,length=50", DataConfig())


def test_every_stage_with_masked_texts_is_checked():
    masked = replace(
        recipe(), masking=MaskingConfig(method="general"), data=DataConfig(source=(GENERAL,)),
        initial_stages=(Stage(samples=64, source=("scenes:simple,size=32,length=50",)),),
    )  # fmt: skip
    with pytest.raises(ValueError, match="stage 1 of 2"):
        require_general_captions(masked)
    (stage,) = masked.initial_stages
    without = replace(stage, objective=Objective(masked=0.0))
    require_general_captions(replace(masked, initial_stages=(without,)))
    require_general_captions(replace(masked, masking=MaskingConfig(method="general", text_fraction=0.0)))
    require_general_captions(replace(masked, masking=MaskingConfig(method="drop")))


def test_streams_are_read_from_their_beginning(tmp_path):
    pair = [("a.png", b"x"), ("a.txt", b"a bird")]
    write_tar(tmp_path / "with.tar", [*pair, ("a.json", b'{"general": ["an animal"]}')])
    write_tar(tmp_path / "without.tar", pair)
    assert has_general_captions(f"pipe:cat {shlex.quote(str(tmp_path))}/with.tar", DataConfig())
    assert not has_general_captions(f"pipe:cat {shlex.quote(str(tmp_path))}/without.tar", DataConfig())
