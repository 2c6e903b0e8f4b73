"""The model card that goes to the hub with a model."""

from __future__ import annotations

from prolip.model.prolip import ProLIP

TEMPLATE = """---
library_name: prolip
pipeline_tag: zero-shot-image-classification
{license}tags:
- prolip
- probabilistic-embeddings
- clip
---

# {name}

A [prolip](https://arxiv.org/abs/2410.18857) model: {what}.

| | |
|---|---|
| parameters | {parameters:,} |
| embedding | {dimensions} dimensions |
| images | {image_size} x {image_size} pixels, patches of {patch_size} |
| texts | up to {context} tokens of a vocabulary of {vocabulary:,} |
| log-variances | image: {image_uncertainty}, text: {text_uncertainty} |
{origin}
```python
import prolip

model = prolip.load("{repo_id}")
images = model.embed_images(["cat.jpg"])
texts = model.embed_texts(["a cat", "an animal"])
images.uncertainty, texts.uncertainty
model.match_probability_matrix(images, texts)
```

Training data, evaluation and intended use: to be filled in by whoever trained it.
"""


def card(model: ProLIP, repo_id: str, license: str | None = None) -> str:
    """Markdown with the hub's front matter; says what is known, and leaves the rest to people."""
    config = model.config
    what = (
        "images and texts become points (no variances)"
        if config.deterministic
        else "an image or a text becomes a Gaussian, whose width says what it leaves open"
    )
    origin = model.origin.get("format")
    return TEMPLATE.format(
        name=repo_id.rsplit("/", maxsplit=1)[-1], repo_id=repo_id, what=what,
        license=f"license: {license}\n" if license else "",
        parameters=sum(p.numel() for p in model.parameters()), dimensions=config.embed_dim,
        image_size=config.image.pixels.size, patch_size=config.image.patch_size,
        context=config.text.tokens.context_length, vocabulary=config.text.tokens.vocab_size,
        image_uncertainty=config.image.uncertainty, text_uncertainty=config.text.uncertainty,
        origin=f"| weights started from | {origin} |\n" if origin else "",
    )  # fmt: skip
