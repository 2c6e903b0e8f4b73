"""The table of claims."""

from prolip.reports.page.claims import build_section


def test_verdicts_are_counted_and_have_signs():
    told = build_section(
        [{"claim": "a", "verdict": word} for word in ("shown", "reversed", "shown", "not run")]
    )
    assert told.intro.startswith("Of 4 claims: 2 shown, 1 reversed, 1 not run.")
    assert [row.sign for row in told.blocks[0].rows] == ["✓", "✗", "✓", "·"]


def test_nobody_takes_the_claims_for_those_of_this_run():
    assert "not by the one above" in build_section([]).intro


def test_what_is_missing_is_blank_and_what_is_more_is_left_out():
    (row,) = build_section([{"claim": "a", "verdict": "shown", "paper": None, "effect": 0.5}]).blocks[0].rows
    assert (row.claim, row.paper, row.ours) == ("a", "", "")
