"""A saved model on frozen encoders in every command."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import prolip
from prolip.cli import main
from prolip.evaluation.untrained import make_untrained
from prolip.scenes.writer import SceneDatasetSpec, write_dataset
from prolip.weights.hub import make_model_card
from tests.adaptation.pictures import describe, draw, write_shard
from tests.weights.encoders import tiny

pytest.importorskip("onnxruntime")
pytest.importorskip("lancedb")
pytestmark = pytest.mark.slow
OPTIONS = ["--captions", "json:caption", "--epochs", "2", "--batch-size", "16", "--dim", "8", "--image-views", "1",
           "--text-crops", "1", "--no-progress"]  # fmt: skip
TEXTS = ["a red circle", "a blue star left of the small blue square", ""]


def run(capsys, *words):
    capsys.readouterr()
    main([str(word) for word in words])
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Encoders as ONNX graphs, pictures, a model, embeddings, and scenes of the evaluations."""
    folder = tmp_path_factory.mktemp("commands")
    image, text = tiny.write_image_graph(folder / "image"), tiny.write_text_graph(folder / "text")
    data = write_shard(folder / "photos.tar", 60)
    main(["adapt", str(data), "--out", str(folder / "model"), "--image-encoder", str(image), "--text-encoder",
          str(text), *OPTIONS])  # fmt: skip
    main(["embed", str(data), "--model", str(folder / "model"), "--out", str(folder / "embeddings"), "--captions",
          "json:caption"])  # fmt: skip
    main(["index", str(folder / "embeddings"), "--out", str(folder / "db")])
    write_dataset(folder / "scenes", SceneDatasetSpec(image_size=32, num_train=1, num_test=24))
    return folder


@pytest.fixture
def model(folder):
    return prolip.load(folder / "model", device="cpu")


def test_adapt_prints_what_to_load(folder, tmp_path, capsys):
    out = run(capsys, "adapt", folder / "photos.tar", "--out", folder / "model", "--image-encoder",
              folder / "image" / "image.onnx", "--text-encoder", folder / "text" / "text.onnx", *OPTIONS)  # fmt: skip
    assert f'prolip.load("{folder / "model"}")' in out


def test_load_and_embed(model):
    images, texts = model.embed_images([draw(0), draw(1)]), model.embed_texts(TEXTS)
    for z in (images, texts):
        assert z.uncertainty.isfinite().all()
        torch.testing.assert_close(z.mean.norm(dim=-1), torch.ones(len(z)))
    assert model.match_probability_matrix(images, texts).shape == (2, 3)


def test_search(folder, capsys):
    found = json.loads(run(capsys, "search", folder / "db", "a red circle", "-k", "3", "--json"))
    assert len(found["hits"] if "hits" in found else found["results"]) == 3


def test_filter(folder, tmp_path, capsys):
    out = run(
        capsys,
        "filter",
        folder / "embeddings",
        "--out",
        tmp_path / "kept",
        "--keep-fraction",
        "0.5",
        "--json",
    )
    assert json.loads(out)


@pytest.mark.parametrize(
    "words",
    [
        ["zeroshot", "scenes/wds_scenes-shape_test"],
        ["retrieval", "photos.tar", "--captions", "json:caption"],
        ["uncertainty", "photos.tar", "--captions", "json:caption"],
        ["hierarcaps", "scenes/hierarcaps/test.csv"],
        ["hierarimgs", "scenes/hierarimgs/levels"],
        [
            "robustness",
            "scenes/wds_scenes-shape_test",
            "--pgd-steps",
            "0",
            "--corruptions",
            "jpeg",
            "--severities",
            "1",
        ],
        ["prompts", "scenes/wds_scenes-shape_test"],
    ],
    ids=lambda words: " ".join(words[:1] + words[2:3]),
)
def test_evaluate_and_report(folder, tmp_path, capsys, monkeypatch, words):
    monkeypatch.chdir(folder)
    run(
        capsys,
        "evaluate",
        *words,
        "--model",
        "model",
        "--out",
        tmp_path / "results",
        "--no-figures",
        "--cache",
        "no",
    )
    out = run(capsys, "report", tmp_path / "results")
    assert Path(out.strip()).is_file()


def test_pgd_is_refused_before_the_work(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit):
        main(["evaluate", "robustness", "scenes/wds_scenes-shape_test", "--model", "model", "--out", "x"])
    error = capsys.readouterr().err
    assert "--pgd-steps 0" in error
    assert "image.onnx" in error


def test_traverse(folder, tmp_path, capsys):
    from PIL import Image

    Image.fromarray(draw(0)).save(tmp_path / "a.png")
    (tmp_path / "captions.txt").write_text(
        "\n".join(sorted({text for i in range(30) for text in describe(i)}))
    )
    out = run(capsys, "traverse", tmp_path / "a.png", "--captions", tmp_path / "captions.txt", "--model",
              folder / "model", "--json")  # fmt: skip
    assert json.loads(out)


def test_convert_to_folder_keeps_the_model(folder, model, tmp_path):
    main(["convert", str(folder / "model"), "--out", str(tmp_path / "copy")])
    copy = prolip.load(tmp_path / "copy", device="cpu")
    assert torch.equal(copy.embed_texts(TEXTS).mean, model.embed_texts(TEXTS).mean)


@pytest.mark.parametrize(
    "words",
    [["--to", "release"], ["--image-size", "48"], ["--context-length", "64"]],
)
def test_conversions_that_need_a_transformer_are_refused(folder, tmp_path, capsys, words):
    with pytest.raises(SystemExit):
        main(["convert", str(folder / "model"), "--out", str(tmp_path / "out"), *words])
    assert "frozen encoder" in capsys.readouterr().err
    assert not list((tmp_path / "out").glob("*"))


def test_training_from_it_is_refused(folder, tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["train", "nano", "--model.pretrained", str(folder / "model"), "--out", str(tmp_path / "run")])
    assert "frozen encoder" in capsys.readouterr().err


def test_untrained_controls_read_the_same_features_with_random_widths(model):
    first, second = make_untrained(model, 0), make_untrained(model, 1)
    texts = [text for i in range(12) for text in describe(i)]
    widths = [one.embed_texts(texts).uncertainty for one in (first, second, model)]
    assert all(len(set(width.tolist())) > 5 for width in widths)
    assert not torch.equal(widths[0], widths[1])
    again = make_untrained(model, 0).embed_texts(texts)
    assert torch.equal(again.log_var, first.embed_texts(texts).log_var)
    for name in ("shift", "scale", "components"):
        assert torch.equal(getattr(first.image.feature_map, name), getattr(model.image.feature_map, name))
    assert first.image.encoder is model.image.encoder


def test_model_card_names_encoders_and_licenses(model):
    card = make_model_card(model, "me/photos", "mit")
    assert (
        f"| frozen image encoder | image.onnx (digest {model.config.image.encoder.digest}, 16 features, "
        in card
    )
    assert "license not stated" in card
    assert "patches" not in card


def test_a_moved_encoder_says_how_to_pass_it(folder, tmp_path):
    copy = Path(shutil.copytree(folder / "model" / "model", tmp_path / "model"))
    config = json.loads((copy / "config.json").read_text())
    config["model"]["image"]["encoder"]["name"] = str(tmp_path / "gone" / "image.onnx")
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"set_encoders\(image="):
        prolip.load(copy)
    model = prolip.ProLIP.from_folder(copy)
    model.set_encoders(image=folder / "image" / "image.onnx", text=folder / "text" / "text.onnx")
    assert model.embed_images([draw(0)]).shape == (1, 8)


def test_another_encoder_under_the_same_name_is_refused(folder, tmp_path):
    copy = shutil.copytree(
        folder, tmp_path / "all", ignore=shutil.ignore_patterns("db", "scenes", "embeddings")
    )
    config_path = copy / "model" / "model" / "config.json"
    config_path.write_text(config_path.read_text().replace(str(folder), str(copy)))
    tiny.write_text_graph(copy / "text", seed=5)
    with pytest.raises(ValueError, match="meaningless"):
        prolip.load(copy / "model")
