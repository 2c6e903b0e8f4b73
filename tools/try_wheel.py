"""Installs a wheel into an empty environment outside the checkout, and runs every command of it there.

python tools/try_wheel.py dist/prolip-*.whl [--python python3.12] [--keep FOLDER]

First without extras: what needs none must work, and what needs one must name it. Then with the extras of `make test`:
every command must end well. The README's Python snippets run there, too.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parent.parent
EXTRAS = "report,data,search,ray,app,onnx,photos,lora,integrations,logging"
SCENES = "scenes:simple,size=48,length=120"
MODEL = "--model scenes-tiny"
TASK = "scenes/wds_scenes-shape_test"

WITHOUT_EXTRAS = f"""
doctor
data scenes --out scenes --num-train 120 --num-test 40
data check scenes/train/00000.tar
data ambiguity "a small red circle"
data tokenizer captions.txt --out tokenizer.json
train nano --samples 64 --out run
train run --resume
export run/checkpoints/step-000000002 --out exported
convert exported --out converted
traverse scenes/hierarcaps/images/000000.png --captions captions.txt {MODEL}
evaluate zeroshot {TASK} {MODEL} --out results/zeroshot
cache
"""
"""Commands that need no extra, in an order in which later ones use what earlier ones wrote."""

NAMES_ITS_EXTRA = f"""
embed {SCENES} --out embeddings {MODEL} [data]
index embeddings --out database [search]
report toy --out toy [report]
convert scenes-tiny --to onnx --out onnx [onnx]
export exported --to vectors --out vectors.parquet [data]
traverse scenes/hierarcaps/images/000000.png --captions captions.txt --model photos-small [photos]
"""
"""Commands with the extra that their message must name."""

WITH_EXTRAS = f"""
{WITHOUT_EXTRAS.replace("--out ", "--out full-").replace("run/", "full-run/").replace("train run", "train full-run")}
embed {SCENES} --out embeddings {MODEL}
embed captions.txt --modality text --out captions {MODEL}
index embeddings --out database
index --out database --verify
search database "a red circle"
calibrate {SCENES} {MODEL} --out database
search database "a red circle" --matching 0.5
filter embeddings --out clean --keep-fraction 0.5
export embeddings --to vectors --out vectors.parquet
convert scenes-tiny --to onnx --out onnx
app --help
evaluate retrieval scenes/wds_scenes-retrieval_test {MODEL} --out results/retrieval
evaluate suite datacomp --tasks cifar10 {MODEL} --out results/suite
evaluate hierarcaps scenes/hierarcaps/test.csv --images scenes/hierarcaps/images {MODEL} --out results/hierarcaps
evaluate hierarimgs scenes/hierarimgs/levels {MODEL} --out results/hierarimgs
evaluate robustness {TASK} --pgd-images 4 {MODEL} --out results/robustness
evaluate prompts {TASK} {MODEL} --out results/prompts
evaluate uncertainty {SCENES} {MODEL} --out results/uncertainty
evaluate image-ambiguity scenes/wds_scenes-veiled_test {MODEL} --out results/image-ambiguity
evaluate background scenes/hierarimgs/instances.json scenes/hierarimgs/images {MODEL} --out results/background
evaluate judgements {SCENES} judgements.csv {MODEL} --out results/judgements
data hierarimgs scenes/hierarimgs/instances.json scenes/hierarimgs/images --out built
adapt {SCENES} --out adapted
report page results
report page run
report toy --out toy
report scenes --out sheets
demo --help
"""


@dataclass(frozen=True)
class Outcome:
    """How a command ended: its exit code, what it printed, seconds."""

    code: int
    text: str
    seconds: float


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and the empty folder beside it in which commands run."""

    folder: Path
    python: str

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def create(self) -> None:
        self.home.mkdir(parents=True)
        subprocess.run([self.python, "-m", "venv", self.folder / "venv"], check=True)

    def run(self, *command: str) -> Outcome:
        """Run a program of the environment in its empty folder, offline and without this process's Python path."""
        env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        env |= {"HF_HUB_OFFLINE": "1", "PROLIP_CACHE": str(self.home / "cache")}
        env["PATH"] = f"{self.folder / 'venv' / 'bin'}{os.pathsep}{env['PATH']}"
        start = time.monotonic()
        done = subprocess.run(
            command, cwd=self.home, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        return Outcome(done.returncode, done.stdout + done.stderr, time.monotonic() - start)

    def install(self, what: str) -> None:
        done = self.run("python", "-m", "pip", "install", "-q", "-c", str(PROJECT / "constraints.txt"), what)
        if done.code:
            sys.exit(f"cannot install {what}:\n{done.text}")


def read_commands(text: str) -> list[list[str]]:
    """The words of each command, a command per line."""
    return [shlex.split(line) for line in text.splitlines() if line]


def list_commands(environment: Environment) -> list[list[str]]:
    """Every command and subcommand that `--help` lists."""
    groups = {"data", "evaluate", "report"}

    def names(*words: str) -> list[str]:
        text = environment.run("prolip", *words, "--help").text
        return re.findall(r"^  ([a-z][a-z-]+)  ", text.partition("commands:")[2], re.MULTILINE)

    tops = names()
    return [[top] for top in tops if top not in groups] + [[top, sub] for top in groups for sub in names(top)]


def write_inputs(home: Path) -> None:
    """Files that some commands read: captions, and judgements of pairs."""
    words = ["a thing", "a red thing", "a red circle", "a small red circle above a blue star"]
    home.joinpath("captions.txt").write_text("\n".join(words * 30) + "\n")
    rows = [f"0-{index},{words[index % 4]},{index % 4 / 3:.2f}" for index in range(40)]
    home.joinpath("judgements.csv").write_text("image,caption,score\n" + "\n".join(rows) + "\n")


def find_problems(environment: Environment, commands: list[list[str]], expect_extra: bool) -> Iterator[str]:
    """Run commands one after the other; yield a sentence for each that did not end as it should."""
    for words in commands:
        extra = words.pop() if expect_extra else ""
        outcome = environment.run("prolip", *words)
        expected = (outcome.code != 0 and f"'prolip{extra}'" in outcome.text) if extra else outcome.code == 0
        fine = expected and "Traceback" not in outcome.text
        print(f"{'ok  ' if fine else 'BAD '} {outcome.seconds:6.1f} s  prolip {' '.join(words)}", flush=True)
        if not fine:
            yield f"prolip {' '.join(words)}: exit {outcome.code}\n{outcome.text[-2000:]}"


def find_snippet_problems(environment: Environment) -> Iterator[str]:
    """Run the README's Python snippets, each in a process of its own."""
    for snippet in re.findall(
        r"^```python\n(.*?)^```", (PROJECT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    ):
        outcome = environment.run("python", "-c", snippet)
        if outcome.code:
            yield f"a snippet of the README: {outcome.text[-2000:]}"


def try_wheel(wheel: Path, environment: Environment) -> list[str]:
    """All problems of a wheel, as sentences."""
    environment.create()
    write_inputs(environment.home)
    environment.install(str(wheel))
    problems = list(
        find_problems(environment, [[*words, "--help"] for words in list_commands(environment)], False)
    )
    problems += find_problems(environment, read_commands(WITHOUT_EXTRAS), False)
    problems += find_problems(environment, read_commands(NAMES_ITS_EXTRA), True)
    environment.install(f"{wheel}[{EXTRAS}]")
    environment.install("scikit-learn")  # the README's photographs
    shutil.copytree(environment.home / TASK, environment.home / "datacomp" / "wds_cifar10_test")
    problems += find_problems(environment, read_commands(WITH_EXTRAS), False)
    return problems + list(find_snippet_problems(environment))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the environment")
    parser.add_argument(
        "--keep", type=Path, help="a new folder for the environment, kept; default: a temporary one"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary) / "an empty place"
        problems = try_wheel(args.wheel.resolve(), Environment(folder.resolve(), args.python))
    for problem in problems:
        print(f"\n{problem}")
    sys.exit(f"{len(problems)} problems" if problems else 0)


if __name__ == "__main__":
    main()
