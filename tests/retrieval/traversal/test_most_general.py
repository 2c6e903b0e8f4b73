"""Tests of the most general true caption: against its definition, and its properties."""

import pytest
import torch

from prolip.measures import public
from prolip.retrieval.traversal.captions import CaptionsInMemory
from prolip.retrieval.traversal.exact import ExactSearch
from prolip.retrieval.traversal.most_general import find_most_general, get_truth_score
from prolip.retrieval.traversal.traverse import find_roots

GENERAL_ROOTS = ["general-match", "general-containment"]


@pytest.mark.parametrize("root", GENERAL_ROOTS)
def test_find_most_general_matches_definition(draw, root):
    images, captions, null = draw(20, 5), draw(40, 5, high=-2), draw(1, 5)
    score = get_truth_score(root)
    for row, found in enumerate(find_most_general(images, captions, null, score)[1].tolist()):
        scores, threshold = score(images[row : row + 1], captions)[0], score(images[row : row + 1], null)
        is_true = (scores >= threshold[0]).nonzero()[:, 0]
        best = is_true[captions.uncertainty[is_true].argmax()] if len(is_true) else scores.argmax()
        assert found == int(best)


def test_most_general_caption_depends_only_on_the_order_of_scores(draw):
    images, captions, null = draw(20, 5), draw(40, 5, high=-2), draw(1, 5)

    def probability(a, b):
        return torch.sigmoid(5 - 2 * public.csd_matrix(a, b).double())

    search = ExactSearch(CaptionsInMemory(captions), match=probability)
    roots = search.find_most_general(images, null, "general-match")
    assert torch.equal(roots, find_roots(images, captions, "general-match", null=null))


@pytest.mark.parametrize("root", GENERAL_ROOTS)
def test_more_captions_never_make_the_root_less_general(draw, root):
    images, captions, null = draw(20, 5), draw(40, 5, high=-2), draw(1, 5)
    score = get_truth_score(root)
    few, many = (find_most_general(images, captions[:n], null, score)[0] for n in (10, 40))
    assert (many >= few - 1e-6).all()


def test_general_roots_need_null(draw):
    with pytest.raises(ValueError, match="general-match"):
        find_roots(draw(2, 4), draw(3, 4), "general-match")
