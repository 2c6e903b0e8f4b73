"""`prolip convert`: anyone's weights into our folder, made probabilistic, resized; or into the release's, or ONNX."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from prolip.files import require_empty
from prolip.model.prolip import ProLIP
from prolip.model.resize import resized
from prolip.weights import onnx
from prolip.weights.formats import release
from prolip.weights.formats.rules import Account
from prolip.weights.load import open_model
from prolip.weights.make_probabilistic import make_probabilistic

Target = Literal["folder", "probabilistic", "release", "onnx"]


@dataclass(frozen=True)
class Converted:
    model: ProLIP
    account: Account
    format: str
    out: Path
    differences: dict[str, float]
    """Of ONNX from torch; empty for other targets."""

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return {
            "out": str(self.out),
            "from": self.format,
            "model": repr(self.model),
            "loaded": list(self.account.loaded),
            "resized": list(self.account.resized),
            "made_new": list(self.account.new),
            "left_over": dict(self.account.left),
            "differences": self.differences,
        }


def convert(
    source: str | Path,
    out: Path,
    *,
    to: Target = "folder",
    revision: str | None = None,
    config: Path | None = None,
    tokenizer: str | None = None,
    image_size: int | None = None,
    context_length: int | None = None,
    seed: int = 0,
) -> Converted:
    """Read, change as told, write. See `prolip convert --help`."""
    require_empty(out)
    loaded = open_model(source, revision=revision, tokenizer=tokenizer, config=config)
    model = resized(loaded.model, image_size=image_size, context_length=context_length)
    account = replace(loaded.account, resized=_resized(loaded.model, model))
    if to == "probabilistic":
        model, second = make_probabilistic(model, torch.Generator().manual_seed(seed))
        account = replace(second, resized=account.resized, left=(*account.left, *second.left))
    differences: dict[str, float] = {}
    if to == "release":
        release.export(model, out)
    elif to == "onnx":
        differences = onnx.export_onnx(model, out)
    else:
        model.save(out)
    return Converted(model, account, loaded.format, out, differences)


def _resized(before: ProLIP, after: ProLIP) -> tuple[str, ...]:
    old = before.state_dict()
    return tuple(sorted(name for name, value in after.state_dict().items() if value.shape != old[name].shape))


def show(result: Converted) -> None:
    """For people: what was loaded, made new, left over."""
    account = result.account
    print(f"{result.format} -> {result.out}\n{result.model}")
    print(f"loaded     {len(account.loaded)} tensors")
    if account.resized:
        print(f"resized    {', '.join(account.resized)}")
    print(f"made new   {len(account.new)}", *account.new, sep="\n           ")
    print(f"left over  {len(account.left)}", *_by_reason(account), sep="\n           ")
    if result.differences:
        worst = ", ".join(f"{name} {value:.1g}" for name, value in result.differences.items())
        print(f"largest difference between onnxruntime and torch: {worst}")
    if result.model.tokenizer is None:
        reason = f" ({result.model.no_tokenizer})" if result.model.no_tokenizer else ""
        print(
            f"no tokenizer was found{reason}: convert again with --tokenizer, so that it becomes part of the folder"
        )


def _by_reason(account: Account) -> list[str]:
    reasons = sorted({why for _, why in account.left})
    names = {why: [name for name, other in account.left if other == why] for why in reasons}
    return [f"{why}: {', '.join(found)}" for why, found in names.items()]
