"""Entailment: which candidates are drawn, and scores against the measures and scikit-learn."""

import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from prolip.data.sources.folder import ImageList
from prolip.data.sources.hierarcaps import read_hierarcaps
from prolip.embeddings.embedder import Embedder
from prolip.evaluation import entailment, hierarcaps
from prolip.evaluation.configs import HierarCapsConfig
from prolip.evaluation.scored_chains import ScoredChains, collect_own_captions
from prolip.gaussian import Gaussian
from prolip.measures import csd, inclusion, log_containment, log_inclusion, log_perplexity
from prolip.measures.match import LogitParameters
from prolip.scenes import Scenes, entails, parse_caption
from prolip.scenes.config import SceneDatasetSpec
from prolip.scenes.writer import TEST, derive_split_seed, write_dataset


@pytest.fixture
def chains(generator):
    """50 chains of three captions; ten texts a level, so that many are shared."""
    return torch.randint(10, (50, 3), generator=generator) + 10 * torch.arange(3)


def test_drawn_captions_are_of_the_same_level_and_never_own(chains):
    cases = entailment.draw_cases(chains, chains, range(3), 6)
    triples = list(zip(cases.chain.tolist(), cases.level.tolist(), cases.caption.tolist(), strict=True))
    assert len(set(triples)) == len(triples), "a caption is drawn once"
    for (row, level, caption), is_true in zip(triples, cases.is_true.tolist(), strict=True):
        assert caption in chains[:, level]
        assert is_true == (caption in chains[row].tolist())
    assert int(cases.is_true.sum()) == 150, "each own caption"
    counts = torch.bincount(cases.chain[~cases.is_true], minlength=50)
    assert counts.min() > 3
    assert counts.max() <= 18


def test_known_truth_decides(chains):
    cases = entailment.draw_cases(chains, chains, range(2), 8, lambda row, caption: (row + caption) % 2 == 0)
    for row, caption, is_true in zip(cases.chain, cases.caption, cases.is_true, strict=True):
        own = int(caption) in chains[int(row)].tolist()
        assert bool(is_true) == (own or (int(row) + int(caption)) % 2 == 0)


def test_a_query_is_no_candidate_of_itself():
    chains = torch.tensor([[0, 1, 1], [2, 3, 4]])
    cases = entailment.draw_cases(chains, chains, range(2), 1, query_captions=chains[:, -1])
    assert sorted(zip(cases.chain.tolist(), cases.caption.tolist(), strict=True)) == [
        (0, 0), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3),
    ]  # fmt: skip


def test_scores_are_the_measures(draw, monkeypatch):
    monkeypatch.setattr(entailment, "BLOCK_ROWS", 7)
    queries, captions = draw(20, 5), draw(20, 5)
    logits = LogitParameters(scale=3.0, bias=-1.0)
    found = entailment.score_pairs(queries, captions, logits)
    wanted = {
        "log_inclusion": log_inclusion(queries, captions),
        "log_containment": log_containment(queries, captions),
        "inclusion": inclusion(queries, captions),
        "match": logits.logits(queries, captions),
        "csd": -csd(queries, captions),
        "cosine": (queries.mean * captions.mean).sum(-1),
    }
    assert list(found) == list(wanted)
    for name, values in wanted.items():
        torch.testing.assert_close(found[name], values.double(), rtol=1e-5, atol=1e-5)
    bare = entailment.score_pairs(Gaussian.point(queries.mean), Gaussian.point(captions.mean), logits)
    assert list(bare) == ["match", "cosine"]


def test_metrics_are_scikit_learns_by_level(chains, generator):
    cases = entailment.draw_cases(chains, chains, range(3), 6)
    score = cases.is_true.double() + torch.randn(len(cases.chain), generator=generator)
    found = entailment.evaluate_entailment("caption", cases, {"cosine": score}, exact=False)
    for entry in (found.all_levels, *found.levels):
        rows = torch.ones_like(cases.is_true) if entry.level is None else cases.level == entry.level
        metrics = entry.scores["cosine"]
        assert metrics.n == int(rows.sum())
        assert metrics.auroc == pytest.approx(roc_auc_score(cases.is_true[rows], score[rows]))
        assert metrics.average_precision == pytest.approx(
            average_precision_score(cases.is_true[rows], score[rows])
        )
    assert [entry.level for entry in found.levels] == [0, 1, 2]
    table = found.table()
    assert "some are true" in table.caption
    assert list(table.columns[0].cells) == ["cosine"]
    cell = f"{found.levels[1].scores['cosine'].auroc:.3f} / {found.levels[1].scores['cosine'].average_precision:.3f}"
    assert list(table.columns[3].cells) == [cell]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    spec = SceneDatasetSpec(world="simple", image_size=32, num_test=12, num_train=2)
    write_dataset(folder, spec, progress=False)
    source = Scenes("simple", length=12, size=32, seed=derive_split_seed(spec.seed, TEST))
    return read_hierarcaps(folder / "hierarcaps" / "test.csv"), source


def test_truth_of_scenes_is_exact(nano, scenes):
    data, source = scenes
    config = HierarCapsConfig(steps=5, controls=1, world="simple")
    result = hierarcaps.evaluate_hierarcaps(Embedder(model=nano), data, config, source.is_true_caption)
    assert [(entry.query, entry.exact) for entry in result.entailment] == [("image", True), ("caption", True)]
    cases = entailment.draw_cases(data.chains, data.chains, range(4), config.negatives)
    is_true = [
        source.is_true_caption(int(data.image_index[row]), data.captions[caption])
        for row, caption in zip(cases.chain, cases.caption, strict=True)
    ]
    assert result.entailment[0].all_levels.scores["cosine"].num_positive == sum(is_true) > 48
    own = [[data.captions[index] for index in chain] for chain in data.chains]
    assert all(source.is_true_caption(i, text) for i, chain in enumerate(own) for text in chain)
    assert all(source.entails(chain[-1], text) for chain in own for text in chain)
    assert result.entailment[1].levels[0].scores["words"].auroc is None, "a caption of level 0 is always true"
    unknown = hierarcaps.evaluate_hierarcaps(
        Embedder(model=nano), data, HierarCapsConfig(steps=5, controls=0)
    )
    assert not any(entry.exact for entry in unknown.entailment)
    assert unknown.order_controls.get("untrained") is None


def test_scenes_entail_by_their_words(scenes):
    _, source = scenes
    pairs = [
        ("a red circle", "a circle"),
        ("a circle", "a red circle"),
        ("a small red circle", "a red circle"),
    ]
    for specific, general in pairs:
        assert source.entails(specific, general) == entails(parse_caption(specific), parse_caption(general))
    assert [source.entails(*pair) for pair in pairs] == [True, False, True]


def test_captions_of_all_chains_of_an_image_are_its_own(scenes):
    data, _ = scenes
    shared = type(data)(**vars(data) | {"image_index": torch.arange(12) // 2})
    own = collect_own_captions(shared, torch.tensor([3]))
    assert set(own[0].tolist()) == set(data.chains[2:4].flatten().tolist())


def test_controls_of_candidates_do_not_depend_on_the_query(nano, scenes):
    """With the query's image out of the pool, only true captions would miss their own: they would be known by that."""
    data, _ = scenes
    embedder = Embedder(model=nano)
    captions = embedder.embed_texts(data.captions)
    encoded = embedder.embed_images(ImageList(data.path, data.images))
    chains = ScoredChains(embedder, data, HierarCapsConfig(perplexity_scale=20.0), captions, encoded)
    found = chains._candidate_scores
    for caption in range(len(data.captions)):
        owners = {int(data.image_index[row]) for row in (data.chains == caption).any(1).nonzero()[:, 0]}
        wanted = [
            log_perplexity(
                captions[caption : caption + 1], encoded.images, 20.0, exclude=torch.tensor([owner])
            ).item()
            for owner in owners
        ]
        assert min(abs(found["perplexity"][caption].item() - value) for value in wanted) < 1e-6
    torch.testing.assert_close(found["uncertainty"], captions.uncertainty.double())
