import json
from dataclasses import replace

import pytest

from reproduction.claim import Claim, Control
from reproduction.evidence import Evidence
from reproduction.observations import observe_fraction
from reproduction.rows import make_row
from reproduction.tests.factories import cell

READ = observe_fraction("x", "n")
UNTRAINED = Control(name="untrained", variant="untrained")


def claim(**changes):
    embedded = {
        "id": "c",
        "statement": "It is so",
        "definition": "By x.",
        "where": "Table 1",
        "paper": "90 %",
        "observe": READ,
    }
    return Claim(**embedded | changes)


def cells(*values, variant="prolip", scale="minutes", **more):
    return [cell(variant, seed, scale, x=value, n=10_000, **more) for seed, value in enumerate(values)]


def row(found, **changes):
    return make_row(claim(**changes), Evidence(found))


def test_a_row_tells_mean_spread_and_where_numbers_come_from():
    found = row([*cells(0.9, 0.92, 0.94), *cells(0.5, 0.6, variant="untrained")], controls=(UNTRAINED,))
    assert (found.verdict, found.why) == ("shown", "")
    assert found.ours == "92.0 ± 2.0 %"
    assert found.controls == "untrained 50.0 to 60.0 %"
    assert found.scope == "minutes: prolip 3 seeds, untrained 2 seeds"
    assert found.effect == pytest.approx(0.42)
    assert (found.claim, found.definition, found.paper) == ("It is so", "By x.", "90 %")


def test_what_an_untrained_model_does_as_well_is_not_shown_and_the_row_says_why():
    found = row([*cells(0.9, 0.92, 0.94), *cells(0.2, 0.97, variant="untrained")], controls=(UNTRAINED,))
    assert (found.verdict, found.why) == ("not shown", "untrained shows it as well")


def test_a_control_that_only_stands_beside_changes_nothing():
    beside = Control(name="ppcl", variant="ppcl", against=False)
    found = row([*cells(0.9, 0.92), *cells(0.99, variant="ppcl")], controls=(beside,))
    assert found.verdict == "shown"
    assert found.controls == "ppcl 99.0 %"


def test_nothing_is_shown_while_its_control_is_missing():
    found = row(cells(0.9, 0.92), controls=(UNTRAINED,))
    assert (found.verdict, found.why) == ("not run", "the control untrained is missing")
    assert row(cells(0.1, 0.12), controls=(UNTRAINED,)).verdict == "reversed"


def test_a_control_may_be_read_off_the_claims_own_cells():
    own = Control(name="constant", observe=observe_fraction("y", "n"))
    assert row(cells(0.9, y=0.6), controls=(own,)).verdict == "shown"
    assert row(cells(0.9, y=0.9), controls=(own,)).why == "constant shows it as well"


def test_without_cells_a_claim_is_not_run():
    found = row([])
    assert (found.verdict, found.why, found.ours) == ("not run", "no cell of prolip", "")
    assert row(cells(0.9), rival="clip").why == "no cell of clip"
    negatives = [*cells(0.9, scale="hour"), *cells(0.8, variant="clip")]
    assert row(negatives, rival="clip").why == "no scale with cells of prolip and clip"


def test_a_model_that_lacks_the_number_is_not_run():
    assert row([cell(x=None, n=10)]).verdict == "not run"


@pytest.mark.parametrize(("theirs", "word"), [(0.5, "shown"), (0.9, "not shown"), (0.99, "reversed")])
def test_a_rival_is_beaten_beyond_the_spread_of_both(theirs, word):
    found = row([*cells(0.88, 0.9, 0.92), *cells(theirs, variant="clip")], rival="clip")
    assert found.verdict == word
    assert found.ours == f"90.0 ± 2.0 % against {100 * theirs:.1f} %"


def test_rivals_are_compared_at_one_scale():
    found = row(
        [*cells(0.6), *cells(0.99, scale="hour"), *cells(0.8, variant="clip")],
        rival="clip",
    )
    assert found.scope == "minutes: prolip 1 seed, clip 1 seed"
    assert found.verdict == "reversed"


def test_controls_of_a_comparison_are_compared_with_the_rival_too():
    own = Control(name="constant variances", observe=observe_fraction("y", "n"))
    beaten = cells(0.7, variant="clip")
    assert row([*cells(0.9, y=0.7), *beaten], rival="clip", controls=(own,)).verdict == "shown"
    found = row([*cells(0.9, y=0.9), *beaten], rival="clip", controls=(own,))
    assert found.why == "constant variances shows it as well"


def test_a_variant_with_one_seed_borrows_the_headlines_spread():
    lonely = cells(0.6, variant="mask")
    assert row(lonely, variant="mask").verdict == "shown"
    assert row([*lonely, *cells(0.2, 0.9)], variant="mask").verdict == "not shown"


def test_rows_are_plain():
    assert json.loads(json.dumps(row(cells(0.9)).to_dict()))["verdict"] == "shown"


def test_a_cell_without_the_path_of_a_number_is_named():
    with pytest.raises(ValueError, match=r"hour/prolip-0\.json: .* no number at x"):
        row([cell(scale="hour", n=10)])


def test_a_cell_that_was_measured_before_there_was_such_a_number_is_skipped():
    old = replace(cell(seed=1, n=10), provenance={})
    assert row([*cells(0.9), old]).scope.endswith("prolip 1 seed")


def test_a_scale_at_which_a_control_was_run_is_preferred():
    control = Control(name="matched", variant="ppcl-matched")
    small = [*cells(0.9), *cells(0.55, variant="ppcl-matched")]
    assert row(small, controls=(control,)).verdict == "shown"
    large = [cell(scale="hour", x=0.99, n=1000)]
    assert row([*small, *large], controls=(control,)).scope.startswith("minutes")
    assert row([*small[:1], *large]).scope.startswith("hour")
