import torch

from prolip.evaluation.retrieval import recall_at_k
from prolip.scenes import RandomDraws, is_true
from prolip.scenes.captions import make_complete_caption
from reproduction.retrieval import find_true_pairs
from reproduction.tests.factories import WORLD, gaussian


def scenes_and_captions(count):
    scenes = [WORLD.draw_scene(3, index) for index in range(count)]
    return scenes, [
        make_complete_caption(scene, RandomDraws(3, index), WORLD) for index, scene in enumerate(scenes)
    ]


def test_true_pairs_are_those_that_hold():
    scenes, captions = scenes_and_captions(150)
    wanted = {
        (i, j)
        for i, scene in enumerate(scenes)
        for j, caption in enumerate(captions)
        if is_true(caption.meaning, scene)
    }
    keys = find_true_pairs(scenes, captions).keys.tolist()
    assert {divmod(key, len(captions)) for key in keys} == wanted
    assert {(i, i) for i in range(150)} < wanted


def test_scenes_that_words_cannot_tell_apart_count_as_the_same():
    scenes, captions = scenes_and_captions(20)
    scenes += scenes[:5]
    captions += [
        make_complete_caption(scene, RandomDraws(9, index), WORLD) for index, scene in enumerate(scenes[:5])
    ]
    means = torch.nn.functional.normalize(
        torch.randn(20, 4, generator=torch.Generator().manual_seed(0)), dim=1
    )
    images = texts = gaussian([0.1] * 25, torch.cat([means, means[:5]]))
    right = find_true_pairs(scenes, captions)
    assert recall_at_k(images, texts, right, ks=(1,))["r1"] == 1.0
    assert recall_at_k(texts, images, right.transpose(), ks=(1,))["r1"] == 1.0
    assert {0, 20} <= set(right.indices[right.offsets[20] : right.offsets[21]].tolist())
