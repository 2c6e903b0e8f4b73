from dataclasses import replace

import pytest
from PIL import Image

from prolip.embeddings.embedder import Embedder
from prolip.evaluation.configs import JudgementsConfig
from prolip.evaluation.judgements import evaluate_judgements
from prolip.reports.judgements import save_judgements_figure
from tests.evaluation.judgements import make_rows, make_scenes, write_rows
from tests.reports.svg import svg_texts


@pytest.fixture
def result(nano, tmp_path):
    source = make_scenes()
    table = write_rows(tmp_path / "table.csv", make_rows(source))
    return evaluate_judgements(Embedder(model=nano), source, table, JudgementsConfig(resamples=5))


def test_figure_names_all_scores(result, tmp_path):
    paths = save_judgements_figure(result, tmp_path / "judgements")
    with Image.open(paths[0]) as image:
        assert len(image.convert("RGB").getcolors(2**20)) > 50
    text = svg_texts(paths[1])
    assert {"log inclusion", "trained match", "text uncertainty", "all pairs", "without own captions"} <= set(
        text
    )
    assert any("table.csv" in line for line in text)


def test_figure_omits_what_is_undefined(result, tmp_path):
    undefined = replace(result.scores[0].all_pairs.spearman, value=None, interval=None)
    agreement = replace(result.scores[0].all_pairs, spearman=undefined, auroc=undefined)
    scores = (replace(result.scores[0], all_pairs=agreement), *result.scores[1:])
    scores = tuple(replace(score, without_own=None) for score in scores)
    text = svg_texts(save_judgements_figure(replace(result, scores=scores), tmp_path / "judgements")[1])
    assert "without own captions" not in text
    assert text.count("all pairs") == 1
