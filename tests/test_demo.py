"""The demo on the smallest recipe: what it writes, and when it reuses an earlier run."""

import os
import shutil
import signal
import sys
from functools import partial
from types import SimpleNamespace

import pytest
from rich.console import Console

from prolip import cli, demo
from prolip.demo_config import DemoConfig
from prolip.demo_photos import can_show_photos
from prolip.reports.page.build import REPORT_FILE, ReportPage
from prolip.reports.page.components import HeadlineTile, PageHeader
from prolip.training import recipes
from prolip.training.batches import BatchStream
from prolip.training.run_folder import MODEL, is_run, read_config, read_sessions
from prolip.training.trainer import train

OPTIONS = {"samples": 64, "limit": 12}
QUIET = {"log.display": "none", "log.tensorboard": False}


def load_small_recipe(name):
    """The recipe nano in place of the miniature, which takes minutes."""
    assert name == "miniature"
    return SimpleNamespace(
        build_config=lambda values: recipes.load_recipe("nano").build_config(
            {**{key: value for key, value in values.items() if key not in ("variant", "veiled")}, **QUIET}
        )
    )


@pytest.fixture(scope="module")
def finished_demo(tmp_path_factory):
    """A complete demo: its folder, and what it printed. Others start from a copy of its run."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(demo, "recipes", SimpleNamespace(load_recipe=load_small_recipe))
        patch.setattr(demo, "LONGER_TRAINED", str(folder / "out" / "scenes-demo"))
        patch.setattr(demo, "ReportConfig", partial(demo.ReportConfig, controls=1))  # faster than three
        patch.setattr(demo, "print_tables", lambda tables: printed.extend(tables))
        patch.setattr(Console, "print", lambda _, text, **__: printed.append(text))
        printed = []
        path = demo.run_demo(folder / "out", **OPTIONS)
    return path, printed


def test_run_demo_trains_a_model_and_writes_a_report(finished_demo):
    path, printed = finished_demo
    assert is_run(path.parent / "scenes-demo")
    assert (path.parent / "scenes-demo" / MODEL).is_dir()
    assert path.name == REPORT_FILE
    text = path.read_text()
    assert text.rstrip().endswith("</html>")
    assert "make demo" in text
    assert printed[-1].endswith(str(path))


def test_run_demo_compares_with_other_models(finished_demo):
    _, printed = finished_demo
    table, *photos = (item for item in printed if not isinstance(item, str))
    assert len(photos) == (2 if can_show_photos() else 0)
    _, ours, *others = (str(column.header) for column in table.columns)
    assert ours == "this model"
    assert len(others) == 2
    assert "untrained" in others[0]
    assert table.row_count >= 2
    assert all(cell for column in table.columns for cell in column.cells)


class RecordedDemo:
    """run_demo in a folder; records the seeds that it trained and how many pages it built. Evaluates nothing."""

    def __init__(self, out):
        self.out, self.trained, self.built = out, [], 0

    def __call__(self, **options):
        return demo.run_demo(self.out, **OPTIONS | options)

    @property
    def runs(self):
        """Seeds of all runs in the folder."""
        return {path.name: read_config(path).seed for path in self.out.iterdir() if path.is_dir()}

    def train(self, config, resume):
        self.trained.append(config.seed)
        return train(config, resume=resume)

    def build_report(self, run, out, config, **_):
        self.built += 1
        out.write_text(f"page {self.built}")
        tile = HeadlineTile(
            label="R@1", value="3 %", description="of all", comparisons=(("untrained", "1 %"),)
        )
        return ReportPage(out, PageHeader(title="", subtitle="", metadata=(), tiles=(tile,)))


@pytest.fixture
def empty_demo(tmp_path, monkeypatch):
    recorded = RecordedDemo(tmp_path / "deep" / "demo")
    monkeypatch.setattr(demo, "recipes", SimpleNamespace(load_recipe=load_small_recipe))
    monkeypatch.setattr(demo, "train", recorded.train)
    monkeypatch.setattr(demo, "build_report", recorded.build_report)
    return recorded


@pytest.fixture
def recorded_demo(empty_demo, finished_demo):
    """A folder with a finished run and its page, without training again."""
    source = finished_demo[0].parent
    shutil.copytree(source, empty_demo.out)
    config = empty_demo.out / "scenes-demo" / "config.json"
    config.write_text(config.read_text().replace(str(source), str(empty_demo.out)))
    return empty_demo


@pytest.fixture
def answer(monkeypatch):
    """answer("n"): a user who answers so when asked; returns the list of questions."""
    questions = []

    def install(text):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
        monkeypatch.setattr(Console, "is_terminal", True)
        monkeypatch.setattr(Console, "input", lambda _, prompt, **__: questions.append(prompt) or text)
        return questions

    return install


def test_second_demo_is_reused_without_a_terminal(recorded_demo, capsys):
    path = recorded_demo()
    assert path == recorded_demo.out / REPORT_FILE
    assert (recorded_demo.trained, recorded_demo.built) == ([], 0)
    assert str(path) in capsys.readouterr().out.replace("\n", "")


@pytest.mark.parametrize("text", ["", "y", "Yes"])
def test_second_demo_asks_on_a_terminal(recorded_demo, answer, text):
    questions = answer(text)
    recorded_demo()
    assert len(questions) == 1
    assert (recorded_demo.trained, recorded_demo.built) == ([], 0)


def test_second_demo_is_trained_again_if_the_user_refuses(recorded_demo, answer):
    answer(" No")
    assert recorded_demo().read_text() == "page 1"
    assert recorded_demo.trained == [0]


def test_missing_page_is_built_from_the_existing_run(recorded_demo, answer):
    questions = answer("y")
    (recorded_demo.out / REPORT_FILE).unlink()
    recorded_demo()
    assert questions == []
    assert (recorded_demo.trained, recorded_demo.built) == ([], 1)


def test_overwrite_renames_the_old_run_without_asking(recorded_demo, answer):
    questions = answer("y")
    recorded_demo(overwrite=True)
    assert questions == []
    assert (recorded_demo.trained, recorded_demo.built) == ([0], 1)
    assert recorded_demo.runs == {"scenes-demo": 0, "scenes-demo.old": 0}


@pytest.mark.slow
@pytest.mark.parametrize("other", [{"seed": 1}, {"samples": 96}])
def test_other_settings_train_another_run_and_keep_the_old_one(recorded_demo, other):
    recorded_demo(**other)
    seed = other.get("seed", 0)
    assert (recorded_demo.trained, recorded_demo.built) == ([seed], 1)
    assert recorded_demo.runs == {"scenes-demo": seed, "scenes-demo.old": 0}
    assert read_config(recorded_demo.out / "scenes-demo").samples == other.get("samples", 64)


@pytest.mark.slow
def test_stopped_demo_is_resumed(empty_demo, monkeypatch):
    """Six steps, stopped in the third."""
    next_batch = BatchStream.next_batch

    def stopping(self, step):
        if step == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return next_batch(self, step)

    with monkeypatch.context() as inside:
        inside.setattr(BatchStream, "next_batch", stopping)
        with pytest.raises(KeyboardInterrupt):
            empty_demo(samples=192)
    assert empty_demo.built == 0
    assert not (empty_demo.out / "scenes-demo" / MODEL).exists()
    empty_demo(samples=192)
    first, second = read_sessions(empty_demo.out / "scenes-demo")
    assert first["from_step"] == 0 < second["from_step"]
    assert (empty_demo.out / "scenes-demo" / MODEL).is_dir()
    assert empty_demo.runs == {"scenes-demo": 0}
    assert empty_demo.built == 1


def test_command_passes_its_options(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(demo, "run_demo", lambda out, config: calls.append((out, config)))
    out = ["--out", str(tmp_path)]
    cli.main(["demo", *out, "--seed", "3", "--samples", "500", "--overwrite", "--limit", "7"])
    cli.main(["demo", *out])
    assert calls == [
        (tmp_path, DemoConfig(seed=3, samples=500, overwrite=True, limit=7)),
        (tmp_path, DemoConfig()),
    ]


def test_recipe_takes_the_settings_of_the_demo(tmp_path):
    """The real recipe, which the other tests replace."""
    config = recipes.load_recipe("miniature").build_config(
        {"samples": DemoConfig().samples, "seed": 3, "out": tmp_path / "run"}
    )
    assert (config.samples, config.seed, config.out) == (DemoConfig().samples, 3, str(tmp_path / "run"))
    assert config.objective == recipes.load_recipe("miniature").build_config().objective
