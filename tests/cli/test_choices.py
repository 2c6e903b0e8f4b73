"""The choices that --help lists without torch are those of the code."""

import inspect
import typing

import pytest

from prolip.cli.evaluate import COMMANDS as EVALUATE
from prolip.cli.traverse import traverse
from prolip.evaluation import corruptions, pgd
from prolip.measures.formulas import Form
from prolip.measures.nearest import SimilarityMetric
from prolip.mixture import PooledVariance
from prolip.retrieval.traversal.traverse import Root, RootOf
from prolip.zeroshot.bprw import Prior

KNOWN = {
    "rank_by": SimilarityMetric,
    "variance": PooledVariance,
    "form": Form,
    "start": pgd.StartPoint,
    "prior": Prior,
    "root": Root,
    "root_of": RootOf,
    "corruptions": corruptions.Corruption,
}


def words(annotation):
    """All words of the Literals in a type."""
    if typing.get_origin(annotation) is typing.Literal:
        return set(typing.get_args(annotation))
    return {word for part in typing.get_args(annotation) for word in words(part)}


COMMANDS = {**EVALUATE, "traverse": traverse}


@pytest.mark.parametrize("name", COMMANDS)
def test_choices_match_the_library(name):
    hints = typing.get_type_hints(COMMANDS[name])
    for option in inspect.signature(COMMANDS[name]).parameters:
        if option in KNOWN and (offered := words(hints[option])):
            assert offered == set(typing.get_args(KNOWN[option])), option


def test_every_choice_is_an_option():
    seen = {option for command in COMMANDS.values() for option in inspect.signature(command).parameters}
    assert KNOWN.keys() <= seen
