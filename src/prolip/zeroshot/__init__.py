"""Zero-shot and few-shot classification: class names, templates, prompt weights, BPRW."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prolip.zeroshot.bprw import ZERO_SHOT_CONFIG as ZERO_SHOT_CONFIG
    from prolip.zeroshot.bprw import BPRWConfig as BPRWConfig
    from prolip.zeroshot.bprw import few_shot_config as few_shot_config
    from prolip.zeroshot.bprw import few_shot_weights as few_shot_weights
    from prolip.zeroshot.bprw import fit_prompt_weights as fit_prompt_weights
    from prolip.zeroshot.bprw import zero_shot_weights as zero_shot_weights
    from prolip.zeroshot.class_names import imagenet_class_names as imagenet_class_names
    from prolip.zeroshot.class_names import imagenet_templates as imagenet_templates
    from prolip.zeroshot.class_names import read_class_names as read_class_names
    from prolip.zeroshot.class_names import read_templates as read_templates
    from prolip.zeroshot.few_shot import FewShotSplit as FewShotSplit
    from prolip.zeroshot.few_shot import split_few_shot as split_few_shot
    from prolip.zeroshot.prompt_weights import class_std_filter as class_std_filter
    from prolip.zeroshot.prompt_weights import global_std_filter as global_std_filter
    from prolip.zeroshot.prompt_weights import global_top_k_filter as global_top_k_filter
    from prolip.zeroshot.prompt_weights import single_template_weights as single_template_weights
    from prolip.zeroshot.prompt_weights import threshold_filter as threshold_filter
    from prolip.zeroshot.prompt_weights import top_k_filter as top_k_filter
    from prolip.zeroshot.prompt_weights import uniform_weights as uniform_weights
    from prolip.zeroshot.prompts import embed_classes as embed_classes
    from prolip.zeroshot.prompts import embed_prompts as embed_prompts
    from prolip.zeroshot.prompts import make_prompt_texts as make_prompt_texts
else:
    from prolip.lazy import export_lazily

    __getattr__, __dir__, __all__ = export_lazily(
        __name__,
        {
            "bprw": [
                "BPRWConfig",
                "ZERO_SHOT_CONFIG",
                "few_shot_config",
                "few_shot_weights",
                "fit_prompt_weights",
                "zero_shot_weights",
            ],
            "class_names": [
                "imagenet_class_names",
                "imagenet_templates",
                "read_class_names",
                "read_templates",
            ],
            "few_shot": ["FewShotSplit", "split_few_shot"],
            "prompt_weights": [
                "class_std_filter",
                "global_std_filter",
                "global_top_k_filter",
                "single_template_weights",
                "threshold_filter",
                "top_k_filter",
                "uniform_weights",
            ],
            "prompts": ["embed_classes", "embed_prompts", "make_prompt_texts"],
        },
    )
