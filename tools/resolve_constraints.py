"""Write constraints.txt: every extra of pyproject.toml resolved together by pip, torch at the pinned version.

python tools/resolve_constraints.py
"""

import json
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TORCH = "torch==2.13.0"
LEFT_OUT = {"prolip", "pip", "setuptools", "wheel"}  # ourselves, and what builds
HEADER = f"""\
# Every extra of pyproject.toml, resolved together: `make constraints` writes this file.
# Python {platform.python_version()} on {platform.system()}; torch without a local version, so that a CPU build fits as
# well as a CUDA build (whose own packages torch pins by itself).
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
        command += ["--report", str(report), TORCH, f"{ROOT}[all]"]
        subprocess.run(command, check=True)
        installed = json.loads(report.read_text())["install"]
    versions = {}
    for package in installed:
        name = re.sub(r"[-_.]+", "-", package["metadata"]["name"]).lower()
        versions[name] = package["metadata"]["version"].split("+")[0]
    lines = [f"{name}=={version}\n" for name, version in sorted(versions.items()) if name not in LEFT_OUT]
    ROOT.joinpath("constraints.txt").write_text(HEADER + "".join(lines))
    print(f"constraints.txt: {len(lines)} packages")


if __name__ == "__main__":
    main()
