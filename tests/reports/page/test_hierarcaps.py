"""The section on HierarCaps: what it says of the controls, and which tables it has."""

from dataclasses import replace

import torch

from prolip.evaluation import hierarcaps
from prolip.evaluation.order_controls import OrderControls, measure_order
from prolip.reports.page import hierarcaps as section
from prolip.reports.page.formatting import REVERSED, format_percentage
from tests.evaluation.test_hierarcaps import make_text_result

CHAINS = torch.arange(60).reshape(20, 3)
FALLING = torch.tensor([[3.0, 2.0, 1.0]]).expand(20, 3)


def make_controls(**values):
    pieces = torch.ones(20, 3)
    scores = tuple(measure_order(name, value, CHAINS, pieces) for name, value in values.items())
    return OrderControls(scores=scores, unigram_captions="x", perplexity_scale=None, num_untrained=0)


def test_description_names_the_best_control():
    better = make_controls(uncertainty=FALLING, words=0 * FALLING, unigram=-FALLING)
    text = section.describe_controls(better)
    assert "more than by any control (best: words: 50.0" in text
    assert f"Among 40 pairs of equally many word pieces it is {format_percentage(1.0)}." in text
    worse = section.describe_controls(make_controls(uncertainty=-FALLING, words=FALLING))
    assert "a control does as well (words: 100" in worse
    assert REVERSED in worse
    assert REVERSED not in text


def test_description_says_what_may_be_chance_and_what_has_no_uncertainty():
    values = torch.cat([FALLING[:10], -FALLING[:10]])
    assert "which may be chance" in section.describe_controls(
        make_controls(uncertainty=values, words=FALLING)
    )
    bare = section.describe_controls(make_controls(words=FALLING, unigram=-FALLING))
    assert bare.startswith("This model has no uncertainty")
    assert "words: 100" in bare


def test_section_has_figure_and_tables():
    result = replace(
        make_text_result(hierarcaps.evaluate_chain_uncertainty(FALLING)),
        order_controls=make_controls(uncertainty=FALLING, words=FALLING),
    )
    built = section.build_section(result)
    assert [block.kind for block in built.blocks] == ["figure", "table", "table"]
    assert "word" in built.intro
    bare = section.build_section(replace(result, order_controls=None))
    assert [block.kind for block in bare.blocks] == ["table"]
