"""BaseEmbedder: what an evaluator needs of a model: embeddings of images and texts, and a few of its numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from prolip.data.sample import SampleError
from prolip.data.source import Source
from prolip.embeddings.sample_metadata import SampleMetadata
from prolip.gaussian import Gaussian
from prolip.measures.match import LogitParameters as LogitParameters  # noqa: PLC0414
from prolip.model.prolip import ProLIP
from prolip.preprocessing.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class EncodedImages:
    """The embedded images of a source.

    Attributes:
        images: Gaussian (N, D), on the CPU.
        indices: int64 (N,), increasing: index of each row's sample in its source.
        metadata: Metadata of each row's sample.
        errors: Bad samples, which have no row.
        name: Name of the source.
    """

    images: Gaussian
    indices: Tensor
    metadata: tuple[SampleMetadata, ...]
    errors: tuple[SampleError, ...]
    name: str

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True)
class ImageTransform:
    """A transform of images before the model sees them.

    Attributes:
        name: Must identify the transform with all its settings, since the cache is keyed by it.
        apply: Preprocessed pixels, uint8 (3, S, S), and the sample index -> pixels of the same shape and type.
    """

    name: str
    apply: Callable[[Tensor, int], Tensor]


class BaseEmbedder(ABC):
    """Embeds sources and texts in memory: with a model (`Embedder`), or from files (`PrecomputedEmbedder`).

    Evaluators take it instead of a model, so that they also work with embeddings whose model is not at hand.
    """

    @property
    @abstractmethod
    def identity(self) -> str:
        """Hash of the model's weights, config and tokenizer, see `model_identity`."""

    @property
    @abstractmethod
    def logit_parameters(self) -> LogitParameters:
        """Scale (not its logarithm), bias and exponent of the model's logits."""

    @property
    @abstractmethod
    def has_uncertainty(self) -> bool:
        """Whether images and texts of the model have variances; False: CLIP and SigLIP, whose embeddings are points."""

    @property
    @abstractmethod
    def batch_size(self) -> int:
        """Images per forward pass."""

    @property
    @abstractmethod
    def progress(self) -> bool | None:
        """Whether to show progress bars on stderr; None: if that is a terminal."""

    @abstractmethod
    def embed_images(self, source: Source, transform: ImageTransform | None = None) -> EncodedImages:
        """Embed all images of a source.

        Args:
            source: The data.
            transform: Applied to every image; None: none.

        Returns:
            The Gaussians of all good samples, in the order of the source.

        Raises:
            TooManyBadSamplesError: Too many of the samples are bad.
            ValueError: A shard is broken, no image can be used, or a model is needed and there is none.
        """

    @abstractmethod
    def embed_texts(self, texts: Sequence[str]) -> Gaussian:
        """Embed texts.

        Args:
            texts: N texts.

        Returns:
            Gaussian (N, D), in the order given, on the CPU.

        Raises:
            ValueError: A model is needed and there is none.
        """

    @abstractmethod
    def require_model(self, purpose: str) -> ProLIP:
        """The model itself, for what embeddings are not enough: gradients, untrained copies, tokens.

        Args:
            purpose: What needs it, for the message: "PGD attacks".

        Returns:
            The model.

        Raises:
            ValueError: There is none.
        """

    @abstractmethod
    def with_model(self, model: ProLIP) -> BaseEmbedder:
        """An embedder with the same settings for another model, without a cache.

        Args:
            model: The other model, such as an untrained control.

        Returns:
            The embedder.
        """

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model.

        Raises:
            ValueError: There is no model, or it has no tokenizer.
        """
        model = self.require_model("counting the tokens of captions")
        if model.tokenizer is None:
            model.tokenize([])  # raises an error that says what to do
        assert model.tokenizer is not None
        return model.tokenizer


def has_uncertainty(model: ProLIP) -> bool:
    """Whether both encoders of a model have variances.

    Args:
        model: The model.

    Returns:
        False for CLIP and SigLIP, whose embeddings are points.
    """
    return "none" not in (model.config.image.uncertainty, model.config.text.uncertainty)
