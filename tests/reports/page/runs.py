"""Run folders as training leaves them, without training."""

import json
from dataclasses import replace

import torch

from prolip.model.prolip import ProLIP
from prolip.model.sizes import get_config
from prolip.preprocessing.tokenizer import Tokenizer
from prolip.scenes.source import make_tokenizer
from prolip.training import run_folder
from prolip.training.config import DataConfig, HeldOutConfig, ModelSpec, Stage, TrainConfig

SCENES = "scenes:simple,size=32,length=1000"
LIMIT = 12
WORDS = make_tokenizer()


def fresh_model(deterministic=False, seed=0):
    words = WORDS
    config = get_config("nano", words.config)
    if deterministic:
        image, text = (replace(part, uncertainty="none") for part in (config.image, config.text))
        config = replace(config, image=image, text=text)
    model = ProLIP(config, Tokenizer(words.copy_backend(), config.text.tokenizer))
    return model.init_weights(torch.Generator().manual_seed(seed)).eval()


def make_config(folder, source=SCENES, held_out=None):
    return TrainConfig(
        out=str(folder),
        samples=640,
        batch_size=32,
        model=ModelSpec(size="nano", tokenizer="scenes"),
        data=DataConfig(source=(source,) if source else (), workers=0),
        initial_stages=(Stage(samples=320),),
        held_out=HeldOutConfig(source=held_out),
    )


def make_metrics(step, **values):
    values_of_step = {"samples": 32 * step, "samples_per_second": 64.0, "loss/ppcl": 4.0 - 0.1 * step}
    values_of_step |= {"loss/inclusion": 0.1, "image/uncertainty": 0.1, "text/uncertainty": 0.2}
    return {"step": step, **values_of_step, "held_out/r1": 0.1 * step, "held_out/image_to_text_r1": 0.1} | {
        "held_out/text_to_image_r1": 0.1,
        **values,
    }


def make_run(folder, *, deterministic=False, metrics=True, source=SCENES, held_out=None):
    model = fresh_model(deterministic)
    data = [{"source": source, "samples": 1000, "fingerprint": "f00d"}]
    folder.mkdir(parents=True, exist_ok=True)
    run_folder.write_run_files(folder, make_config(folder, source, held_out), model, data, 0)
    model.save_pretrained(folder / "model")
    if metrics:
        lines = [*(make_metrics(step) for step in (1, 2, 3)), {"step": 3, "message": "a warning"}]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder
