from dataclasses import replace
from pathlib import Path

import pytest
import torch

from prolip.embeddings.embedder import Embedder
from prolip.evaluation.metrics.correlation import spearman
from prolip.files import read_json
from prolip.model.prolip import ProLIP
from reproduction import ambiguity, truth_figure, veils
from reproduction.evaluation_data import EvaluationData, EvaluationSizes, embed_scenes
from reproduction.truth_figure import ImageTruth, ModelUncertainty, TextTruth, TruthNumbers

DATA = EvaluationData(Path("nowhere"), EvaluationSizes(scenes=60, size=32))


@pytest.fixture(scope="module")
def measured(scenes_model):
    return truth_figure.measure_truth({"fresh": scenes_model}, DATA)


def test_texts_are_those_of_the_table(measured, scenes_model):
    embedder = Embedder(model=scenes_model, progress=False)
    expected = ambiguity.measure_ambiguity(embed_scenes(embedder, DATA))
    found = truth_figure.correlate(
        measured.models[0].texts, measured.texts.log_ambiguity, measured.texts.words
    )
    assert len(measured.texts.level) == expected["n"]
    assert found.overall == pytest.approx(expected["spearman"], abs=0.02)  # numbers are rounded
    assert found.within == pytest.approx(expected["within_length"]["mean"], abs=0.05)


def test_images_are_those_of_the_table(measured, scenes_model):
    expected = veils.measure_veils(Embedder(model=scenes_model, progress=False), DATA)
    found = truth_figure.correlate(measured.models[0].images, measured.images.log_ambiguity, [0] * 60)
    assert expected["n"] == len(measured.images.veil) == 60
    assert found.overall == found.within == pytest.approx(expected["spearman"], abs=0.02)


def test_kinds_of_veils_say_what_is_hidden(measured):
    """Scenes without a veil are the clearest; behind curtains and with hidden facts they are less clear on average."""
    truth, kind = torch.tensor(measured.images.log_ambiguity), torch.tensor(measured.images.veil)
    assert set(kind.tolist()) <= set(range(len(truth_figure.VEILS)))
    assert truth[kind == 3].mean() > truth[kind == 1].mean()


def test_correlations_are_overall_and_within_groups():
    truth = torch.arange(120.0)
    groups = [0] * 60 + [1] * 60
    uncertainty = [*range(60, 0, -1), *range(200, 260)]
    found = truth_figure.correlate(uncertainty, truth.tolist(), groups)
    assert found.overall == spearman(torch.tensor(uncertainty, dtype=torch.float64), truth.double())
    assert found.within == pytest.approx(0)
    assert truth_figure.correlate([1.0, 2.0], [1.0, 2.0], [0, 0]).within is None


def test_a_deterministic_model_is_refused(scenes_model):
    towers = {
        name: replace(getattr(scenes_model.config, name), uncertainty="none") for name in ("image", "text")
    }
    config = replace(scenes_model.config, **towers)
    model = ProLIP(config, scenes_model.tokenizer).init_weights(torch.Generator().manual_seed(0))
    with pytest.raises(ValueError, match="plain is a deterministic model"):
        truth_figure.measure_truth(
            {"plain": model}, EvaluationData(Path("nowhere"), EvaluationSizes(scenes=2, size=32))
        )


def test_main_draws_models_and_draws_again_from_numbers(scenes_model, tmp_path, capsys):
    scenes_model.save_pretrained(tmp_path / "model")
    out = tmp_path / "truth"
    truth_figure.main(
        [f"fresh={tmp_path / 'model'}", "scenes-tiny=scenes-tiny", "--out", str(out), "--scenes", "8"]
    )
    saved = [out.with_suffix(suffix) for suffix in (".json", ".png", ".svg")]
    assert capsys.readouterr().out.split() == [str(path) for path in saved]
    numbers = TruthNumbers.from_json(read_json(saved[0]))
    assert [model.name for model in numbers.models] == ["fresh", "scenes-tiny"]
    truth_figure.main(["--numbers", str(saved[0]), "--out", str(tmp_path / "again")])
    assert (tmp_path / "again.png").read_bytes() == saved[1].read_bytes()


def test_figure_shows_names_and_correlations(tmp_path):
    texts = TextTruth((0.0, -1.0, -2.0, -3.0), (0, 1, 2, 3), (1, 2, 3, 4))
    images = ImageTruth((0.0, -1.0, -2.0, -3.0), (3, 2, 1, 0))
    model = ModelUncertainty("upside down", (1.0, 2.0, 3.0, 4.0), (4.0, 3.0, 2.0, 1.0))
    _, svg = truth_figure.save_truth_figure(TruthNumbers(texts, images, (model,)), tmp_path / "figure")
    content = svg.read_text()
    for text in ("upside down", "ρ −1.00, within a length –", "ρ +1.00, within a veil –", "both hidden"):
        assert text in content


@pytest.mark.parametrize("args", [[], ["=folder"], ["name"], ["a=b", "--numbers", "c.json"]])
def test_main_says_how_models_are_given(args, capsys):
    with pytest.raises(SystemExit):
        truth_figure.main(args)
    assert "NAME=FOLDER" in capsys.readouterr().err
