"""Configs of the evaluations refuse what no evaluation can use, before any work."""

import subprocess
import sys
from dataclasses import fields

import pytest

from prolip.evaluation import configs
from prolip.evaluation.configs import RetrievalConfig, RobustnessConfig, ZeroShotConfig

CONFIGS = [value for name, value in vars(configs).items() if name.endswith("Config")]


@pytest.mark.parametrize(
    ("config", "values", "message"),
    [
        (ZeroShotConfig, {"rank_by": "dot"}, "rank_by.*dot"),
        (ZeroShotConfig, {"variance": "none"}, "variance.*none"),
        (ZeroShotConfig, {"seed": -1}, "seed.*-1"),
        (ZeroShotConfig, {"seed": 2**32}, f"seed.*{2**32}"),
        (ZeroShotConfig, {"limit": 0}, "limit.*0"),
        (RetrievalConfig, {"limit": 2.5}, "limit.*2.5"),
        (RobustnessConfig, {"limit": -3}, "limit.*-3"),
        (RobustnessConfig, {"start": "middle"}, "start.*middle"),
        (RobustnessConfig, {"corruptions": ("fog",)}, "corruptions.*fog"),
        (RobustnessConfig, {"pgd_images": 0}, "pgd_images.*0"),
    ],
)
def test_config_refuses_invalid_values(config, values, message):
    with pytest.raises(ValueError, match=message):
        config(**values)


@pytest.mark.parametrize("config", CONFIGS)
def test_options_have_defaults_and_one_name_each(config):
    names = {field.name for field in fields(config)}
    assert config() == config()
    assert not names & {"metric", "max_images", "num_images"}, "they are called rank_by and limit"


def test_configs_need_no_torch():
    code = (
        "import sys, prolip.evaluation.configs, prolip.reports.page.config; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
