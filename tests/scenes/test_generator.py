from prolip.data.evaluation_sets import prepare_evaluation_sets
from prolip.data.open import make_generated_tokenizer, open_data
from prolip.data.source import AnnotatedSource
from prolip.scenes import HARD, is_true_caption, log_ambiguity, make_tokenizer


def test_scenes_are_an_annotated_source():
    source = open_data("scenes:hard,length=5,seed=3")
    assert isinstance(source, AnnotatedSource)
    sample = source.read(2)
    annotations = source.caption_annotations(2)
    assert tuple(one.text for one in annotations) == sample.captions
    for one in annotations:
        assert one.log_ambiguity == source.log_ambiguity(one.text) == log_ambiguity(one.text, HARD)
        assert source.is_true_caption(2, one.text)
    wrong = is_true_caption("a red circle", sample.extra["scene"])
    assert source.is_true_caption(2, "a red circle") == wrong


def test_make_generated_tokenizer_is_that_of_scenes():
    text = "a small red circle"
    assert make_generated_tokenizer("scenes", 16)([text]).tolist() == make_tokenizer(16)([text]).tolist()


def test_prepare_evaluation_sets_uses_own_seed(tmp_path):
    spec = "scenes:simple,size=32,unseen=8,length=100,seed=1,captions=1"
    sets = prepare_evaluation_sets(spec, tmp_path, limit=6, seed=7, progress=False)
    assert len(sets.pairs) == len(sets.retrieval) == len(sets.zero_shot.source) == 6
    assert sets.pairs.read(0).key == "7-0"
    assert len(sets.pairs.read(0).captions) == 4
    assert len(sets.zero_shot.class_names) == 64
    assert len(sets.prompts.class_names) == 8
    assert len(sets.hierarcaps.captions) > 0
    assert [path.name for path in tmp_path.iterdir()] == ["simple-32px-8-unseen-6-v5"]
