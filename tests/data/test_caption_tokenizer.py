import pytest

from prolip.data.caption_tokenizer import train_tokenizer
from prolip.data.config import TokenizerTrainConfig
from prolip.preprocessing.tokenizer_builders import choose_vocab_size
from tests.data.test_splits import write_table


def test_vocabulary_grows_with_the_square_root_of_the_captions():
    assert [choose_vocab_size(n) for n in (1, 100, 10_000, 10**9)] == [290, 578, 3458, 32_768]


def test_same_tokenizer_from_a_table_and_from_lines(tmp_path):
    texts = [f"a red bird on branch {number}" for number in range(20)]
    table = write_table(tmp_path / "t", list(enumerate(texts)))
    (tmp_path / "lines.txt").write_text("\n".join(texts))
    one, two = (
        train_tokenizer([data], TokenizerTrainConfig()) for data in (table, str(tmp_path / "lines.txt"))
    )
    assert one.encode(texts[3]) == two.encode(texts[3])
    assert one.decode(one([texts[3]])) == [texts[3]]
    assert one.config.vocab_size <= choose_vocab_size(20)
    assert len(one.encode("bird")) == 1


def test_bad_samples_are_skipped(tmp_path):
    table = write_table(tmp_path / "t", [(0, "a bird"), (None, "a fish"), (2, "a bird")])
    assert train_tokenizer([table], TokenizerTrainConfig(vocab_size=300)).config.vocab_size > 258


def test_streams_are_refused():
    with pytest.raises(ValueError, match="stream"):
        train_tokenizer(["pipe:cat a.tar"], TokenizerTrainConfig())


def test_too_small_a_vocabulary_is_refused(tmp_path):
    table = write_table(tmp_path / "t", [(0, "a bird")])
    with pytest.raises(ValueError, match="258"):
        train_tokenizer([table], TokenizerTrainConfig(vocab_size=100))
