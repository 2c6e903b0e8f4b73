"""Choices of options, as Literals: declared once, without torch, for the library and for `--help`."""

from __future__ import annotations

from typing import Literal

SimilarityMetric = Literal["csd", "cosine"]
"""csd: the closed-form sampled distance (Eq. 1). cosine: of the means alone."""

PooledVariance = Literal["average", "independent"]
"""`average`: sum pi s, the mean variance. `independent`: sum pi^2 s, that of a sum of independent draws."""

Form = Literal["exact", "published"]
"""`exact`: the integral of p1^2 p2. `published`: Eq. 4 as printed, with which the released models were trained."""

Prior = Literal["initial", "dirichlet"]
"""Use of 1/tr(Sigma) of the prompts. `initial`: initial weights of EM (the appendix; for alpha above 1 the result does
not depend on them). `dirichlet`: concentrations of the prior (text of section 3.4)."""

Corruption = Literal["gaussian_noise", "gaussian_blur", "jpeg", "contrast", "brightness", "pixelate"]
"""Kinds of image corruption, in the order of the tables."""

StartPoint = Literal["random", "clean"]
"""Start of PGD: a random point within epsilon of the image, or the image itself."""

WidthTeacher = Literal["likelihood", "pool", "both"]
"""What the widths of heads on frozen encoders learn from. likelihood: matching pairs, with the means. pool: the pool
perplexity of means that are finished; matches don't read such widths (docs/frozen-means.md). both: the widths of a
likelihood and the pool perplexity of its means, in one (docs/adapt.md)."""

Modality = Literal["image", "text"]
"""What an embedding is of."""

Variances = Literal["full", "trace"]
"""full: the log-variance of every dimension. trace: only the sum of the variances, which is all that CSD needs."""

Precision = Literal["float32", "float16"]
"""Data type of stored means. float16 halves their size and keeps three significant digits."""

Decoding = Literal["exact", "fast"]
"""exact: the pixels of the full decoding. fast: a large JPEG is decoded at 1/2, 1/4 or 1/8 of its size, by JPEG's own
scaling; its pixels differ slightly, so that embeddings of one can't stand for those of the other."""

Engine = Literal["local", "ray"]
"""local: in this process. ray: on the cluster of RAY_ADDRESS, or with Ray on this machine."""

SceneWorld = Literal["simple", "hard", "varied", "styled"]
"""Named worlds of scenes that models are trained on, as in scenes:simple and scenes:hard."""

FilterCriterion = Literal[
    "csd",
    "cosine",
    "image-uncertainty",
    "text-uncertainty",
    "inclusion",
    "image-perplexity",
    "text-perplexity",
]
"""Scores by which image-text pairs are ranked (filtering/criteria.py)."""

DuplicateKind = Literal["images", "captions", "both"]
"""images, captions: pairs whose images, or whose captions, are similar. both: either of them."""

FilterOutput = Literal["ids", "parquet", "dropped", "shards"]
"""ids: the uids in DataComp's format. parquet: a table of the kept samples. dropped: a table of the others, with the
reason. shards: tars of the kept samples."""

IndexChoice = Literal["auto", "none", "ivf-sq", "ivf-rq", "ivf-pq"]
"""auto: the kind the database has; else no index for few rows, and for many the first of those that
`retrieval.index.build` tries that reaches the recall."""

RankBy = Literal["csd", "cosine", "match"]
"""csd: by the closed-form sampled distance. cosine: by the means alone. match: by the match probability of the loss
that the model was trained with; for PPCL that is the order of csd."""

InclusionMeasure = Literal["inclusion", "containment"]
"""By log inclusion, or by log containment, of an item in the query, or of the query in an item."""

Root = Literal[
    "null", "inclusion", "containment", "inclusion+null", "containment+null",
    "general-match", "general-containment", "general-match+null", "general-containment+null",
]  # fmt: skip
"""null: the embedding of "". inclusion, containment: the caption that includes the query most by that measure.
general-...: the most uncertain caption that counts as true, because it matches (or contains) the query at least as well
as "" does. ...+null: the mean of the caption and null, of unit length; inclusion+null is the paper's choice."""

RootOf = Literal["image", "caption"]
"""Whose root is sought: the image's, or that of the caption nearest to it (the paper has both)."""

ConvertTarget = Literal["folder", "probabilistic", "likelihood", "release", "onnx", "sentence-transformers"]
"""folder: prolip's format. probabilistic: the same with added uncertainty. likelihood: that with one log-variance per
sample. release: the ProLIP release's format. sentence-transformers: a folder that SentenceTransformer opens."""

ExportTarget = Literal["model", "vectors", "atlas"]
"""model: the model of a checkpoint. vectors, atlas: tables of embeddings for vector databases and embedding-atlas."""

WorldName = Literal["single", "simple", "hard", "varied", "styled"]
"""Distributions of scenes. single: one object; simple: one or two, drawn cleanly; hard: up to three, in eight drawing
styles; varied: simple with unequal shapes, colors and sizes; styled: simple in frequent, strong drawing styles."""
