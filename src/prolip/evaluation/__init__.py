"""Evaluation: metrics, one evaluator per family of tasks, DataComp's suite; results are typed, with JSON."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prolip.evaluation.background import BackgroundResult as BackgroundResult
    from prolip.evaluation.background import evaluate_background as evaluate_background
    from prolip.evaluation.calibration import calibrate as calibrate
    from prolip.evaluation.configs import BackgroundConfig as BackgroundConfig
    from prolip.evaluation.configs import CalibrateConfig as CalibrateConfig
    from prolip.evaluation.configs import HierarCapsConfig as HierarCapsConfig
    from prolip.evaluation.configs import HierarImgsConfig as HierarImgsConfig
    from prolip.evaluation.configs import ImageAmbiguityConfig as ImageAmbiguityConfig
    from prolip.evaluation.configs import JudgementsConfig as JudgementsConfig
    from prolip.evaluation.configs import PromptsConfig as PromptsConfig
    from prolip.evaluation.configs import RetrievalConfig as RetrievalConfig
    from prolip.evaluation.configs import RobustnessConfig as RobustnessConfig
    from prolip.evaluation.configs import SuiteConfig as SuiteConfig
    from prolip.evaluation.configs import UncertaintyConfig as UncertaintyConfig
    from prolip.evaluation.configs import ZeroShotConfig as ZeroShotConfig
    from prolip.evaluation.hierarcaps import HierarCapsResult as HierarCapsResult
    from prolip.evaluation.hierarcaps import evaluate_hierarcaps as evaluate_hierarcaps
    from prolip.evaluation.hierarimgs import HierarImgsResult as HierarImgsResult
    from prolip.evaluation.hierarimgs import evaluate_hierarimgs as evaluate_hierarimgs
    from prolip.evaluation.image_ambiguity import evaluate_image_ambiguity as evaluate_image_ambiguity
    from prolip.evaluation.image_ambiguity_result import ImageAmbiguityResult as ImageAmbiguityResult
    from prolip.evaluation.judgements import evaluate_judgements as evaluate_judgements
    from prolip.evaluation.judgements_result import JudgementsResult as JudgementsResult
    from prolip.evaluation.pool_perplexity import PerplexityResult as PerplexityResult
    from prolip.evaluation.pool_perplexity import evaluate_perplexity as evaluate_perplexity
    from prolip.evaluation.prompts import PromptsResult as PromptsResult
    from prolip.evaluation.prompts import compare_strategies as compare_strategies
    from prolip.evaluation.prompts import evaluate_prompts as evaluate_prompts
    from prolip.evaluation.result import Mean as Mean
    from prolip.evaluation.result import Proportion as Proportion
    from prolip.evaluation.result import Result as Result
    from prolip.evaluation.result import read_results as read_results
    from prolip.evaluation.retrieval import RetrievalResult as RetrievalResult
    from prolip.evaluation.retrieval import evaluate_retrieval as evaluate_retrieval
    from prolip.evaluation.retrieval import image_text_recall as image_text_recall
    from prolip.evaluation.robustness import evaluate_robustness as evaluate_robustness
    from prolip.evaluation.robustness_result import RobustnessResult as RobustnessResult
    from prolip.evaluation.suite.run import evaluate_suite as evaluate_suite
    from prolip.evaluation.suite.table import SuiteResult as SuiteResult
    from prolip.evaluation.uncertainty import UncertaintyResult as UncertaintyResult
    from prolip.evaluation.uncertainty import analyze_uncertainty as analyze_uncertainty
    from prolip.evaluation.uncertainty import evaluate_uncertainty as evaluate_uncertainty
    from prolip.evaluation.zeroshot import compute_zeroshot_metrics as compute_zeroshot_metrics
    from prolip.evaluation.zeroshot import evaluate_zeroshot as evaluate_zeroshot
    from prolip.evaluation.zeroshot_result import ZeroShotResult as ZeroShotResult
else:
    from prolip.lazy import export_lazily

    __getattr__, __dir__, __all__ = export_lazily(
        __name__,
        {
            "background": ["BackgroundResult", "evaluate_background"],
            "calibration": ["calibrate"],
            "configs": [
                "BackgroundConfig",
                "CalibrateConfig",
                "HierarCapsConfig",
                "HierarImgsConfig",
                "ImageAmbiguityConfig",
                "JudgementsConfig",
                "PromptsConfig",
                "RetrievalConfig",
                "RobustnessConfig",
                "SuiteConfig",
                "UncertaintyConfig",
                "ZeroShotConfig",
            ],
            "hierarcaps": ["HierarCapsResult", "evaluate_hierarcaps"],
            "hierarimgs": ["HierarImgsResult", "evaluate_hierarimgs"],
            "image_ambiguity": ["evaluate_image_ambiguity"],
            "image_ambiguity_result": ["ImageAmbiguityResult"],
            "judgements": ["evaluate_judgements"],
            "judgements_result": ["JudgementsResult"],
            "pool_perplexity": ["PerplexityResult", "evaluate_perplexity"],
            "prompts": ["PromptsResult", "compare_strategies", "evaluate_prompts"],
            "result": ["Mean", "Proportion", "Result", "read_results"],
            "retrieval": ["RetrievalResult", "evaluate_retrieval", "image_text_recall"],
            "robustness": ["evaluate_robustness"],
            "robustness_result": ["RobustnessResult"],
            "suite.run": ["evaluate_suite"],
            "suite.table": ["SuiteResult"],
            "uncertainty": ["UncertaintyResult", "analyze_uncertainty", "evaluate_uncertainty"],
            "zeroshot": ["compute_zeroshot_metrics", "evaluate_zeroshot"],
            "zeroshot_result": ["ZeroShotResult"],
        },
    )
