"""Tables of judgements: columns, every rule for rows that can't be used, and the scale."""

import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prolip.evaluation.configs import JudgementsConfig
from prolip.evaluation.judgement_table import read_judgements

GOOD = "key,caption,score\nk1,a dog,1\nk2,a cat,0.25\n"


def write(tmp_path, text, name="table.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_same_table_as_csv_tsv_and_parquet(tmp_path):
    rows = {
        "key": [7, 8, 9], "caption": ["a dog, here", "ein Bär", "x"], "share_yes": [0.5, 1.0, 0.0],
        "judges": [2, 3, 4], "own": [True, False, False],
    }  # fmt: skip
    pq.write_table(pa.table(rows), tmp_path / "table.parquet", row_group_size=2)
    lines = ["\t".join(rows), *("\t".join(map(str, row)) for row in zip(*rows.values(), strict=True))]
    tables = [
        read_judgements(tmp_path / "table.parquet"),
        read_judgements(write(tmp_path, "\n".join(lines), "table.tsv")),
        read_judgements(
            write(
                tmp_path,
                'key,caption,share_yes,judges,own\n7,"a dog, here",.5,2,1\n8, ein Bär ,1,3,no\n9,x,0,4,0.0\n\n',
            )
        ),
    ]
    for table in tables:
        assert table.keys == ("7", "8", "9")
        assert table.captions == ("a dog, here", "ein Bär", "x")
        assert table.scores.tolist() == [0.5, 1.0, 0.0]
        assert table.num_judges.tolist() == [2, 3, 4]
        assert table.is_own.tolist() == [True, False, False]
        assert (table.num_rows, table.num_blank, table.num_repeated) == (3, 0, 0)


def test_optional_columns_may_be_absent(tmp_path):
    table = read_judgements(write(tmp_path, GOOD))
    assert table.num_judges is None
    assert table.is_own is None
    assert table.judges == ()
    assert (table.scale.low, table.scale.high) == (0.0, 1.0)


def test_scores_of_single_judges_give_the_mean_score(tmp_path):
    path = write(tmp_path, "image,text,ann,bob,cy\nk1,a dog,1,2,4\nk2,a cat,,3,nan\nk3,a cow,,,\n")
    table = read_judgements(path, JudgementsConfig(judge_columns=("ann", "bob", "cy")))
    assert table.scores.tolist() == pytest.approx([7 / 3, 3])
    assert table.num_judges.tolist() == [3, 1]
    assert table.judges == ("ann", "bob", "cy")
    assert table.judge_scores[0].tolist() == [1, 2, 4]
    assert [math.isnan(score) for score in table.judge_scores[1].tolist()] == [True, False, True]
    assert table.num_blank == 1
    assert (table.scale.low, table.scale.high) == (1.0, 4.0), "of the judges' scores, not of their means"


def test_blank_captions_and_scores_are_counted_and_equal_rows_count_once(tmp_path):
    text = GOOD + "k3,,1\nk4,a cow,\nk5,a hen,NaN\nk1, a dog ,1.0\nk2,a dog,1\n"
    table = read_judgements(write(tmp_path, text))
    assert list(zip(table.keys, table.captions, strict=True)) == [
        ("k1", "a dog"),
        ("k2", "a cat"),
        ("k2", "a dog"),
    ]
    assert (table.num_rows, table.num_blank, table.num_repeated) == (7, 3, 1)


HEAD = "key,caption,score"
BAD_TABLES = [
    ("key,caption,points\nk,a,1\n", {}, r"score_column.*columns are key, caption, points"),
    ("name,caption,score\nk,a,1\n", {}, r"--key-column.*name, caption, score"),
    ("key,words,score\nk,a,1\n", {}, r"--caption-column.*key, words, score"),
    (GOOD, {"score_column": "vote"}, r"no column 'vote'.*key, caption, score"),
    (GOOD, {"own_column": "mine"}, "no column 'mine'"),
    (GOOD, {"judge_columns": ("ann", "bob")}, "no column 'ann'"),
    ("key,caption,score,score\nk,a,1,1\n", {}, "2 columns 'score'"),
    (GOOD, {"score_column": "key"}, "only once"),
    (GOOD + "k3,a cow,good\n", {}, r"row 3.*'score'.*'good'"),
    (GOOD + "k3,a cow,inf\n", {}, r"row 3.*'score'.*'inf'"),
    (GOOD + ",a cow,1\n", {}, r"row 3.*key.*blank"),
    (GOOD + "k1,a dog,0.5\n", {}, r"row 3 judges the same.*row 1.*--judge-columns"),
    (GOOD, {"scale": (0.5, 1.0)}, r"row 2.*0.25 is outside of the scale 0.5 to 1"),
    (GOOD, {"scale": (0.0, 0.5)}, r"row 1.*score 1 is outside"),
    ("key,caption,score\nk,a,3\nk,b,3\n", {}, "all scores are 3"),
    ("key,caption,score\n", {}, "no judgements: 0 rows"),
    ("key,caption,score\nk,,1\nk,a,\n", {}, "no judgements: 2 rows, 2 with a blank"),
    ("", {}, "empty"),
    (GOOD + "k3,a,cow,1\n", {}, r"row 3.*4 cells for 3 columns"),
    (GOOD + 'k3,"a cow,1\n', {}, r"row 3.*quotes"),
    (HEAD + ",judges\nk,a,1,2\nk,b,0,\n", {}, r"row 2.*'judges'.*at least 1"),
    (HEAD + ",judges\nk,a,1,2\nk,b,0,2.5\n", {}, r"row 2.*whole number.*'2.5'"),
    (HEAD + ",judges\nk,a,1,0\n", {}, r"row 1.*'0'"),
    (HEAD + ",own\nk,a,1,1\nk,b,0,maybe\n", {}, r"row 2.*'own'.*'maybe'"),
    (HEAD + ",own\nk,a,1,\n", {}, r"row 1.*'own'.*''"),
]


@pytest.mark.parametrize(("text", "options", "message"), BAD_TABLES)
def test_bad_tables_are_refused_with_the_place(tmp_path, text, options, message):
    with pytest.raises(ValueError, match=message):
        read_judgements(write(tmp_path, text), JudgementsConfig(**options))


def test_other_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.csv"):
        read_judgements(tmp_path / "none.csv")
    with pytest.raises(ValueError, match=r"\.tsv"):
        read_judgements(write(tmp_path, GOOD, "table.txt"))
    with pytest.raises(ValueError, match="damaged"):
        read_judgements(write(tmp_path, GOOD, "table.parquet"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": (1.0, 1.0)}, "scale"),
        ({"scale": (0.0, math.inf)}, "scale"),
        ({"judge_columns": ("a",)}, "two or more"),
        ({"judge_columns": ("a", "a")}, "different"),
        ({"judge_columns": ("a", "b"), "count_column": "n"}, "one of them"),
        ({"max_skipped": 1.5}, "max_skipped"),
        ({"resamples": 0}, "resamples"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        JudgementsConfig(**options)
