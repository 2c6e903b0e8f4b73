import json
import math

import numpy as np
import pytest
import torch
from PIL import Image

from prolip import scenes
from prolip.data.open import open_data
from prolip.embeddings.embedder import Embedder
from prolip.evaluation.captions import EmbeddedPairs, TokenizedCaptions, embed_pairs, tokenize_captions
from prolip.model.create import create
from prolip.scenes.config import SceneDatasetSpec
from prolip.scenes.writer import write_dataset


@pytest.fixture(scope="module")
def model():
    return create("nano", scenes.make_tokenizer(32), seed=0).eval()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("scenes") / "data"
    write_dataset(out, SceneDatasetSpec(image_size=32, num_test=12, num_train=6, unseen=3), progress=False)
    return out


def write_table(folder, captions):
    Image.new("RGB", (32, 32), "red").save(folder / "a.png")
    lines = "\n".join(f'a.png,"{text}"' for text in captions)
    (folder / "data.csv").write_text(f"filepath,caption\n{lines}\n")
    return open_data(folder / "data.csv")


def test_chains_become_captions_with_levels_and_the_column_is_the_truth(model, folder):
    source = open_data(folder / "hierarcaps" / "test.csv")
    pairs = embed_pairs(Embedder(model=model), source)
    captions = pairs.captions
    assert len(pairs.images) == 12
    assert captions.levels.tolist() == [0, 1, 2, 3] * 12
    assert captions.image_index.tolist() == [i for i in range(12) for _ in range(4)]
    row = source.read(7)
    assert list(captions.texts[28:32]) == [text.strip() for text in row.captions[0].split("=>")]
    assert captions.log_ambiguity[28:32].tolist() == [float(v) for v in row.extra["log_ambiguity"].split()]
    torch.testing.assert_close(pairs.texts.mean, model.embed_texts(captions.texts).mean, atol=1e-5, rtol=0)
    torch.testing.assert_close(
        pairs.images.log_var[7], model.embed_images([row.image]).log_var[0], atol=1e-5, rtol=0
    )


def test_shards_of_scenes_have_levels_and_ambiguity(model, folder):
    source = open_data(folder / "train", captions=["json:captions"])
    captions = embed_pairs(Embedder(model=model), source).captions
    record = json.loads(source.read(2).extra["json"])
    own = (captions.image_index == 2).nonzero()[:, 0]
    assert [captions.texts[i] for i in own] == record["captions"]
    assert captions.levels[own].tolist() == record["caption_levels"]
    assert captions.log_ambiguity[own].tolist() == record["log_ambiguity"]


def test_drawn_scenes_have_levels_and_ambiguity(model):
    source = scenes.Scenes("simple", length=5, size=32, captions=3)
    captions = embed_pairs(Embedder(model=model), source, limit=2).captions  # numbers 0 and 4
    annotated = [*source.captions(0), *source.captions(4)]
    assert captions.levels.tolist() == [caption.level for caption in annotated]
    assert captions.log_ambiguity.tolist() == [
        scenes.log_ambiguity(c.meaning, source.world) for c in annotated
    ]


def test_world_annotates_captions_without_annotations(model, tmp_path):
    source = write_table(tmp_path, ["a red circle", "what a lovely day", "something round"])
    captions = embed_pairs(Embedder(model=model), source).captions
    assert captions.levels is None
    assert captions.log_ambiguity is None
    truth = embed_pairs(
        Embedder(model=model), source, log_ambiguity=open_data("scenes:simple").log_ambiguity
    ).captions.log_ambiguity.tolist()
    assert truth[0] == scenes.log_ambiguity("a red circle", scenes.SIMPLE)
    assert math.isnan(truth[1])
    assert truth[2] == scenes.log_ambiguity("something round", scenes.SIMPLE)


def test_a_world_does_not_overrule_the_data(model, folder):
    source = open_data(folder / "hierarcaps" / "test.csv")
    annotated = embed_pairs(Embedder(model=model), source).captions.log_ambiguity
    assert torch.equal(
        embed_pairs(
            Embedder(model=model), source, log_ambiguity=open_data("scenes:hard").log_ambiguity
        ).captions.log_ambiguity,
        annotated,
    )


def test_other_words_and_a_world_are_a_mistake(model, tmp_path):
    source = write_table(tmp_path, ["what a lovely day"])
    with pytest.raises(ValueError, match="words are unknown"):
        embed_pairs(Embedder(model=model), source, log_ambiguity=open_data("scenes:simple").log_ambiguity)


def test_separator_in_a_single_caption_makes_no_chain(model, tmp_path):
    captions = embed_pairs(Embedder(model=model), write_table(tmp_path, ["a => b", "c"])).captions
    assert captions.texts == ("a => b", "c")
    captions = embed_pairs(Embedder(model=model), write_table(tmp_path, ["a => b", "c => d => e"])).captions
    assert captions.levels is None
    captions = embed_pairs(Embedder(model=model), write_table(tmp_path, ["a", "b"])).captions
    assert captions.levels is None, "without an arrow there is no chain"


def test_chain_with_empty_level_is_rejected(model, tmp_path):
    with pytest.raises(ValueError, match="empty caption"):
        embed_pairs(Embedder(model=model), write_table(tmp_path, ["a => b", "c => "]))


def test_source_without_captions_is_rejected(model, folder):
    source = open_data(folder / "hierarcaps" / "test.csv", captions=())
    with pytest.raises(ValueError, match="no captions"):
        embed_pairs(Embedder(model=model), source)


def test_a_limit_is_spread_over_the_source(model):
    source = scenes.Scenes("simple", length=101, size=32)
    pairs = embed_pairs(Embedder(model=model), source, limit=3)
    assert pairs.indices.tolist() == [0, 50, 100]
    assert pairs.keys == tuple(source.read(n).key for n in (0, 50, 100))


def test_tokens_are_those_between_start_and_end(model):
    texts = ["a red circle", "a", "a red circle"]
    tokens, lengths = tokenize_captions(texts, model.tokenizer)
    assert lengths.tolist() == [3, 1, 3]
    rules = model.tokenizer.config
    ids = model.tokenizer.encode(texts[0])
    assert tokens[:3].tolist() == [i for i in ids if i not in (rules.start_id, rules.end_id)]
    assert tokens[:3].tolist() == tokens[4:].tolist()


def test_mismatched_arguments_are_rejected(draw):
    def captions(**change):
        plain = {"texts": ("a", "b"), "image_index": torch.tensor([0, 1])}
        plain |= {"tokens": torch.tensor([1, 2, 3]), "lengths": torch.tensor([1, 2])}
        return TokenizedCaptions(**plain | change)

    with pytest.raises(ValueError, match="levels must have the shape"):
        captions(levels=torch.tensor([1]))
    with pytest.raises(ValueError, match="sum to 3"):
        captions(tokens=torch.tensor([1]))
    good = {
        "images": draw(2, 4),
        "texts": draw(2, 4),
        "indices": torch.arange(2),
        "keys": ("x", "y"),
        "name": "n",
    }
    with pytest.raises(ValueError, match="rows of 2 images"):
        EmbeddedPairs(**good, captions=captions(image_index=torch.tensor([0, 2])))
    with pytest.raises(ValueError, match="3 embedded texts for 2 captions"):
        EmbeddedPairs(**good | {"texts": draw(3, 4)}, captions=captions())
    assert captions(texts=("a", "a")).first_occurrences().tolist() == [0]
    assert np.array_equal(captions().first_occurrences(), [0, 1])
