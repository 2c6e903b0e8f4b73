"""Tests of the record of words that a model meets in training."""

import os
import signal
from dataclasses import replace
from types import SimpleNamespace

import torch.distributed as dist

import prolip
from prolip.model.create import create
from prolip.preprocessing import collect_words
from prolip.scenes import make_tokenizer
from prolip.training import trainer, word_record
from prolip.training.batches import BatchStream
from prolip.training.config import CheckpointConfig
from prolip.training.state import export_checkpoint
from prolip.training.word_record import WordRecorder
from tests.processes import start_ranks
from tests.training.test_trainer import nano as nano_config


def make_batch(*captions, general=None):
    return SimpleNamespace(captions=captions, general_token_ids=general)


def test_recorder_collects_captions_and_more_general_ones(nano):
    recorder = WordRecorder(nano, is_pretrained=False)
    recorder.add(make_batch("a red circle", "", general=nano.tokenizer(["a thing", ""])))
    recorder.add(make_batch("A Red star"))
    assert nano.training_words is None, "set by gather"
    recorder.gather()
    assert nano.training_words == {"a", "red", "circle", "star", "thing"}


def test_recorder_has_no_record_that_would_be_incomplete(nano, monkeypatch):
    for start, expected in ((None, None), (frozenset({"dog"}), {"dog", "a", "cat"})):
        nano.training_words = start
        recorder = WordRecorder(nano, is_pretrained=True)
        recorder.add(make_batch("a cat"))
        recorder.gather()
        assert nano.training_words == expected
    monkeypatch.setattr(word_record, "MAX_WORDS", 1)
    recorder = WordRecorder(nano, is_pretrained=False)
    recorder.add(make_batch("a cat"))
    recorder.add(make_batch("a"))
    recorder.gather()
    assert nano.training_words is None


def test_a_resumed_run_has_the_words_of_all_its_steps(tmp_path, monkeypatch):
    config = replace(
        nano_config(tmp_path / "run", samples=32 * 3), checkpoint=CheckpointConfig(every_steps=1)
    )
    captions, next_batch = [], BatchStream.next_batch

    def stopping(self, step):
        batch = next_batch(self, step)
        captions.extend(batch.captions)
        if not step:
            os.kill(os.getpid(), signal.SIGTERM)
        return batch

    monkeypatch.setattr(BatchStream, "next_batch", stopping)
    trainer.train(config)
    first = collect_words(captions, "canonicalize")
    assert set((tmp_path / "run" / "words.txt").read_text().split()) == first
    export_checkpoint(tmp_path / "run", tmp_path / "exported")
    assert prolip.load(tmp_path / "exported", device="cpu").training_words == first
    trainer.train(config, resume=True)
    found = prolip.load(tmp_path / "run" / "model", device="cpu").training_words
    assert found == collect_words(captions, "canonicalize") > first


def test_a_run_without_a_record_has_none_after_resuming(tmp_path, nano):
    recorder = WordRecorder(nano, is_pretrained=False)
    recorder.restore(tmp_path)
    recorder.add(make_batch("a cat"))
    recorder.gather()
    assert nano.training_words is None


def gather_on_rank(rank, init):
    dist.init_process_group("gloo", init_method=init, rank=rank, world_size=2)
    model = create("nano", make_tokenizer(), seed=0)
    recorder = WordRecorder(model, is_pretrained=False)
    recorder.add(make_batch("a red circle" if rank else "a blue star"))
    recorder.gather()
    assert model.training_words == {"a", "red", "circle", "blue", "star"}
    dist.destroy_process_group()


def test_two_ranks_join_their_words(tmp_path):
    start_ranks(gather_on_rank, (f"file://{tmp_path}/store",), 2)
