import re

import pytest

from reproduction.evidence import Evidence
from reproduction.rows import make_row
from reproduction.table import CLAIMS
from reproduction.tests.factories import cell
from reproduction.variants import VARIANTS


def test_claim_ids_are_unique():
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_claim_has_definition_source_and_known_variants(claim):
    assert "Effect: " in claim.definition
    assert claim.paper
    assert claim.where
    for name in (claim.variant, claim.rival, *(control.variant for control in claim.controls)):
        assert name is None or name in VARIANTS


def test_claims_without_cells_are_not_run():
    assert {make_row(claim, Evidence([])).verdict for claim in CLAIMS} == {"not run"}


def trained(variant, accuracy):
    return cell(variant, zero_shot={"color_shape": {"one_prompt": accuracy, "n": 1000}})


@pytest.mark.parametrize(("ppcl", "word"), [(0.9, "shown"), (0.02, "not shown")])
def test_pml_claim_is_shown_only_if_ppcl_trains(ppcl, word):
    (pml,) = [claim for claim in CLAIMS if claim.id == "pml"]
    assert make_row(pml, Evidence([trained("pml-alone", 0.02), trained("ppcl-alone", ppcl)])).verdict == word


def test_claims_state_the_values_of_the_papers_tables():
    papers = {claim.id: claim.paper for claim in CLAIMS}
    assert papers["zero-shot-clip"] == "67.8 % against 67.2 %"
    assert papers["pml"] == "0.1 %"
    assert papers["uncertainty-ratio-prolip"] == "3.266 (0.2254 / 0.0086) against -1.481 (0.0745 / 0.3276)"
    assert papers["bprw-9"] == "75.8 % against 74.6 %"
    assert papers["traversal-root-recall"] == "23.3 % against 0.1 %"
    assert papers["cost"] == "1.002 against 1.020"
    assert papers["filtering-clip"] == "0.154 against 0.151"


def test_places_in_the_paper_are_named_as_readers_find_them():
    """ "Table C.3", not the label of the LaTeX source."""
    for claim in CLAIMS:
        assert not re.search(r"\b(tab|fig|sec|appendix):", claim.where), claim.where
    assert any(claim.where.startswith("Table C.3") for claim in CLAIMS)
