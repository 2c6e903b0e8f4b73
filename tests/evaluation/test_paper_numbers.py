"""The paper's numbers agree with each other: a slip in copying one would show."""

import pytest

from prolip.evaluation import paper_numbers
from prolip.evaluation.suite.tasks import DATACOMP_TASKS, GROUPS, get_group_tasks

FIVE_COLUMNS = {**paper_numbers.MAIN.rows, **paper_numbers.FINE_TUNED.rows}


def test_paper_tables_have_a_value_per_column():
    for table in paper_numbers.TABLES:
        assert all(len(row) == len(table.columns) for row in table.rows.values()), table.name
        assert table.percent <= set(table.columns)
    assert len({table.name for table in paper_numbers.TABLES}) == len(paper_numbers.TABLES)


def test_the_columns_of_the_full_table_are_the_tasks():
    assert paper_numbers.PER_TASK.columns == (*(task.key for task in DATACOMP_TASKS), "average")
    assert set(paper_numbers.PER_TASK.rows) == set(FIVE_COLUMNS)


@pytest.mark.parametrize("row", paper_numbers.PER_TASK.rows)
def test_tasks_average_to_the_papers_average(row):
    *tasks, average = paper_numbers.PER_TASK.rows[row]
    assert sum(tasks) / 38 == pytest.approx(average, abs=0.00501)


@pytest.mark.parametrize("row", paper_numbers.PER_TASK.rows)
def test_tasks_average_to_the_five_columns(row):
    """So the groups are the paper's too. It rounds twice: 53.347 is printed as 53.4."""
    values = paper_numbers.PER_TASK.row(row)
    for column, printed in zip(paper_numbers.MAIN_COLUMNS, FIVE_COLUMNS[row], strict=True):
        tasks = DATACOMP_TASKS if column == "average" else get_group_tasks(column)
        mean = 100.0 * sum(values[task.key] for task in tasks) / len(tasks)
        assert mean == pytest.approx(printed, abs=0.0551), column
    assert paper_numbers.MAIN_COLUMNS[:-1] == GROUPS


def test_rows_that_stand_in_two_tables_are_the_same():
    assert paper_numbers.MAIN.rows["ProLIP L/16 FT"] == paper_numbers.FINE_TUNED.rows["ProLIP L/16 FT"]
    assert (
        paper_numbers.MAIN.rows["ProLIP SO400M/14 FT"] == paper_numbers.FINE_TUNED.rows["ProLIP SO400M/14 FT"]
    )
    assert paper_numbers.LARGE_ABLATION.rows["both"] == paper_numbers.INCLUSION_GRID.rows["eps -20, c 1000"]
    assert paper_numbers.MAIN.rows["ProLIP B/16 1.28B"] == paper_numbers.INCLUSION_GRID.rows["eps -10, c 10"]
    best = paper_numbers.MAIN.value("ProLIP B/16 12.8B", "imagenet")
    assert (
        best
        == paper_numbers.OCCLUSION.value("0 %", "imagenet")
        == paper_numbers.PROMPTS.value("80 prompts", "imagenet")
    )


def test_percent_becomes_a_fraction():
    assert paper_numbers.MAIN.value("CLIP B/16 1.28B", "vtab") == pytest.approx(0.569)
    assert paper_numbers.FILTERING.value("ProLIP distance 20 %", "average") == 0.154
    assert paper_numbers.SMALL_ABLATION.row("PCME++, [UNC]") == pytest.approx(
        {
            "imagenet": 0.001,
            "image_uncertainty": 0.0354,
            "text_uncertainty": 0.0347,
            "hierarcaps_recall": None,
        }
    )
    assert paper_numbers.HIERARCAPS.value("ProLIP 12.8B, inclusion root", "root_recall") == pytest.approx(
        0.233
    )
    with pytest.raises(ValueError, match="Table 2"):
        paper_numbers.HIERARCAPS.value("CLIP", "recall")
