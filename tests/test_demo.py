"""The demo on the smallest recipe: what it makes, and when it uses again what is there."""

import os
import signal
import sys
from types import SimpleNamespace

import pytest

from prolip import cli, demo
from prolip.reports.page.build import NAME, Page
from prolip.reports.page.components import Header, Tile
from prolip.training import recipes
from prolip.training.batches import Batches
from prolip.training.config import ModelChoice
from prolip.training.model_setup import make_model
from prolip.training.run_folder import MODEL, is_run, read_config, read_sessions
from prolip.training.trainer import train

OPTIONS = {"samples": 64, "quick": 12}
QUIET = ("log.display=none", "log.tensorboard=false")


def small(name):
    """What takes no minutes, in place of the miniature."""
    assert name == "miniature"
    return SimpleNamespace(config=lambda words: recipes.load("nano").config([*words, *QUIET]))


# -- the whole of it ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What is printed, and the page; a fresh model is the one that was trained for longer."""
    folder = tmp_path_factory.mktemp("demo")
    make_model(ModelChoice(size="nano", tokenizer="scenes"), seed=3).save(folder / "longer")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", "200")
        patch.setattr(demo, "recipes", SimpleNamespace(load=small))
        patch.setattr(demo, "LONGER", "longer")
        with pytest.MonkeyPatch.context() as printing:
            said = []
            printing.setattr(demo.Console, "print", lambda _, *texts, **options: said.extend(texts))
            path = demo.run(folder / "out", **OPTIONS)
    return said, path


def test_it_trains_a_model_and_writes_a_report(told):
    said, path = told
    assert is_run(path.parent / "scenes-demo")
    assert (path.parent / "scenes-demo" / MODEL).is_dir()
    assert path.name == NAME
    text = path.read_text()
    assert text.rstrip().endswith("</html>")
    assert "make demo" in text
    assert said[-1].endswith(str(path))


def test_it_shows_its_numbers_beside_an_untrained_and_a_longer_trained_model(told):
    said, _ = told
    (table,) = (text for text in said if isinstance(text, demo.Table))
    _, ours, *others = (str(column.header) for column in table.columns)
    assert ours == "this model"
    assert len(others) == 2
    assert "untrained" in others[0]
    assert "longer" in others[1]
    assert table.row_count >= 2
    assert all(cell for column in table.columns for cell in column.cells)


# -- a second time -----------------------------------------------------------------------------------------------------


class Watched:
    """demo.run in a folder, with the seeds that it trained and how many pages it built."""

    def __init__(self, out):
        self.out, self.trained, self.built = out, [], 0

    def __call__(self, **options):
        return demo.run(self.out, **OPTIONS | options)

    @property
    def runs(self):
        """Seeds of all runs in the folder."""
        return {path.name: read_config(path).seed for path in self.out.iterdir() if path.is_dir()}

    def train(self, config, resume):
        self.trained.append(config.seed)
        return train(config, resume=resume)

    def build(self, run, out, **_):
        """A page of one number, without an evaluation."""
        self.built += 1
        out.write_text(f"page {self.built}")
        tile = Tile(name="R@1", value="3 %", meaning="of all", beside=(("untrained", "1 %"),))
        return Page(out, Header(title="", line="", facts=(), tiles=(tile,)))


@pytest.fixture
def watched(tmp_path, monkeypatch):
    made = Watched(tmp_path / "deep" / "demo")
    monkeypatch.setattr(demo, "recipes", SimpleNamespace(load=small))
    monkeypatch.setattr(demo, "train", made.train)
    monkeypatch.setattr(demo, "build", made.build)
    return made


@pytest.fixture
def answer(monkeypatch):
    """answer("n"): somebody sits there, and says so when asked; how often is in its list."""
    asked = []

    def install(text):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
        monkeypatch.setattr(demo.Console, "is_terminal", True)
        monkeypatch.setattr(demo.Console, "input", lambda _, prompt: asked.append(prompt) or text)
        return asked

    return install


def test_a_second_time_nothing_is_done_again_where_nobody_can_be_asked(watched, capsys):
    first = watched()
    capsys.readouterr()
    assert watched() == first == watched.out / NAME
    assert (watched.trained, watched.built) == ([0], 1)
    assert str(first) in capsys.readouterr().out.replace("\n", "")


@pytest.mark.parametrize("text", ["", "y", "Yes"])
def test_whoever_is_there_is_asked(watched, answer, text):
    asked = answer(text)
    watched()
    assert asked == [], "there is nothing to look at yet"
    watched()
    assert len(asked) == 1
    assert (watched.trained, watched.built) == ([0], 1)


@pytest.mark.parametrize("text", ["n", " No"])
def test_and_may_want_another_page(watched, answer, text):
    watched()
    answer(text)
    assert watched().read_text() == "page 2"
    assert watched.trained == [0, 0]


def test_a_page_that_is_missing_is_made_of_the_run_that_is_there(watched):
    watched().unlink()
    watched()
    assert (watched.trained, watched.built) == ([0], 2)


def test_anew_puts_the_old_run_aside_and_does_not_ask(watched, answer):
    asked = answer("y")
    watched()
    watched(anew=True)
    assert asked == []
    assert (watched.trained, watched.built) == ([0, 0], 2)
    assert watched.runs == {"scenes-demo": 0, "scenes-demo.old": 0}


@pytest.mark.parametrize("other", [{"seed": 1}, {"samples": 96}])
def test_another_run_is_trained_and_the_old_one_kept(watched, other):
    watched()
    watched(**other)
    seed = other.get("seed", 0)
    assert (watched.trained, watched.built) == ([0, seed], 2)
    assert watched.runs == {"scenes-demo": seed, "scenes-demo.old": 0}
    assert read_config(watched.out / "scenes-demo").samples == other.get("samples", 64)


def test_a_demo_that_was_stopped_goes_on(watched, monkeypatch):
    """Six steps, stopped in the third."""
    take = Batches.take

    def stopping(self, step):
        if step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return take(self, step)

    with monkeypatch.context() as inside:
        inside.setattr(Batches, "take", stopping)
        with pytest.raises(KeyboardInterrupt):
            watched(samples=192)
    assert watched.built == 0
    assert not (watched.out / "scenes-demo" / MODEL).exists()
    watched(samples=192)
    first, second = read_sessions(watched.out / "scenes-demo")
    assert first["from_step"] == 0 < second["from_step"]
    assert (watched.out / "scenes-demo" / MODEL).is_dir()
    assert watched.runs == {"scenes-demo": 0}
    assert watched.built == 1


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(demo, "run", lambda out, **options: asked.append((out, options)))
    cli.main(["demo", "--out", str(tmp_path), "--seed", "3", "--samples", "500", "--anew", "--quick", "7"])
    cli.main(["demo", "--out", str(tmp_path)])
    assert asked == [
        (tmp_path, {"seed": 3, "samples": 500, "anew": True, "quick": 7}),
        (tmp_path, {"seed": 0, "samples": demo.SAMPLES, "anew": False, "quick": 500}),
    ]


def test_the_recipe_takes_what_the_demo_asks_for(tmp_path):
    """The real one, which the other tests replace."""
    config = recipes.load("miniature").config(
        [f"samples={demo.SAMPLES}", "seed=3", f"out={tmp_path / 'run'}"]
    )
    assert (config.samples, config.seed, config.out) == (demo.SAMPLES, 3, str(tmp_path / "run"))
    assert config.objective == recipes.load("miniature").config().objective
