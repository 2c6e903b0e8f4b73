"""ProLIP, the model: two towers, logit scale and bias, preprocessing, tokenizer, saving, pushing to the hub."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from prolip.checks import join_names
from prolip.choices import Modality
from prolip.gaussian import Gaussian, check_gaussian, compute_dtype
from prolip.losses.contrastive import LogitScaleBias
from prolip.losses.vmf_likelihood import LikelihoodTemperature
from prolip.measures.match import LogitParameters
from prolip.model import inference
from prolip.model.config import ImageConfig, ModelConfig, TextConfig
from prolip.model.folder import (
    ModelContents,
    read_model_folder,
    require_finite_weights,
    write_model_folder,
)
from prolip.model.frozen_tower import FrozenTower, init_frozen_tower
from prolip.model.image_tower import ImageTower
from prolip.model.init import init_image_tower, init_log_var_head, init_text_tower
from prolip.model.text_tower import TextTower
from prolip.model.transformer import Head, Transformer
from prolip.preprocessing.images import ImageSource, preprocess
from prolip.preprocessing.tokenizer import Tokenizer
from prolip.preprocessing.words import split_words


class ProLIP(nn.Module):
    """A CLIP-like model that maps an image or a text to a Gaussian.

    `ProLIP(config)` has no weights yet: its parameters are on the device "meta", without memory.
    `init_weights(generator)` draws new ones. `ProLIP.from_pretrained`, `prolip.load` (which has more options) and
    `prolip.create` return models that are ready. Names of parameters are stable, see docs/models.md: freeze
    a tower by `model.image.requires_grad_(False)`, wrap `image.blocks.3.attention.qkv` and the like for LoRA.

    Attributes:
        config: Architecture and preprocessing.
        tokenizer: None if the model came without one.
        tokenizer_error: Why there is no tokenizer, where one was looked for.
        origin: Where the weights came from, if they were converted; saved in config.json for the export back.
        training_words: Words of the captions that the model was trained on (`preprocessing.collect_words`); None:
            unknown, as for models and frozen text encoders that were trained elsewhere.
    """

    def __init__(self, config: ModelConfig, tokenizer: Tokenizer | None = None) -> None:
        """Make the towers on the device "meta"; ValueError if the tokenizer doesn't fit the config."""
        super().__init__()
        self.config = config
        self.tokenizer: Tokenizer | None = None
        self.origin: dict[str, Any] = {}
        self.training_words: frozenset[str] | None = None
        self.tokenizer_error = ""
        with torch.device("meta"):
            self.image = _make_image_tower(config)
            self.text = _make_text_tower(config)
            self.logit_scale = nn.Parameter(torch.empty(()))
            has_bias = config.contrastive_loss != "softmax"
            self.logit_bias = nn.Parameter(torch.empty(())) if has_bias else None
            if config.image.uncertainty == "multihead":
                self.log_var = Head(config.embed_dim, config.embed_dim)
        if tokenizer is not None:
            self.set_tokenizer(tokenizer)

    @classmethod
    def from_tensors(cls, config: ModelConfig, tensors: Mapping[str, Tensor], source: object) -> ProLIP:
        """A model in eval mode that holds these tensors.

        Args:
            config: The architecture.
            tensors: The state dict: exactly the parameters of the model, each of its shape, all finite. Where dtypes
                differ (half-precision linear layers with float32 norms, say), all are converted to the widest.
            source: Where the tensors came from, for messages.

        Returns:
            The model, on the device of the tensors.

        Raises:
            ValueError: If the tensors don't fit the config.
        """
        model = cls(config)
        expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
        actual = {name: tuple(value.shape) for name, value in tensors.items()}
        if expected != actual:
            raise ValueError(f"{source} does not fit its config: {_describe_difference(expected, actual)}")
        require_finite_weights(tensors, source)
        dtype = functools.reduce(torch.promote_types, {value.dtype for value in tensors.values()})
        model.load_state_dict({name: value.to(dtype) for name, value in tensors.items()}, assign=True)
        return model.eval()

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        *,
        revision: str | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> ProLIP:
        """Load a model for inference: `prolip.load`, without its options for resizing and for foreign weights.

        Args:
            name_or_path: A local folder or file, "scenes-tiny", or a hub id `owner/name`, of any format that
                `prolip.load` reads.
            revision: Branch, tag or commit of a hub id.
            device: None: CUDA if available, else the CPU.
            dtype: None: as saved.

        Returns:
            The model, in eval mode.

        Raises:
            ValueError, OSError: As `prolip.load`.
            TypeError: For a subclass, whose own parts `prolip.load` doesn't know.
        """
        from prolip.weights.load import load  # a layer above: see DEFERRED in tests/test_layers.py

        if cls is not ProLIP:
            raise TypeError(
                f"from_pretrained loads a ProLIP, not a {cls.__name__}: use {cls.__name__}.from_tensors(model.config, "
                "model.state_dict(), source) with a loaded model"
            )
        return load(name_or_path, revision=revision, device=device, dtype=dtype)

    @classmethod
    def from_folder(cls, folder: Path, *, verify: bool = True) -> ProLIP:
        """The model in a folder that `save_pretrained` wrote: on the CPU, in eval mode, in the dtype of the file.

        Args:
            folder: The model folder.
            verify: Refuse weights that differ from their fingerprint, or have none. False: load what the file holds.

        Returns:
            The model, without the encoders of frozen towers.

        Raises:
            ValueError: A file is damaged, of another version, or of another save than the others.
            FileNotFoundError: config.json or model.safetensors is missing.
        """
        contents = read_model_folder(folder, verify=verify)
        model = cls.from_tensors(contents.config, contents.tensors, folder)
        model.origin = dict(contents.origin)
        model.training_words = contents.training_words
        if contents.tokenizer is not None:
            model.set_tokenizer(contents.tokenizer)
        return model

    def set_tokenizer(self, tokenizer: Tokenizer) -> ProLIP:
        """Use this tokenizer; its config replaces `config.text.tokenizer`, since special ids may differ.

        Args:
            tokenizer: With the vocabulary size, context length and `pad_to` of the config.

        Returns:
            The model itself.

        Raises:
            ValueError: If vocabulary size, context length or `pad_to` differ.
        """
        old, new = self.config.text.tokenizer, tokenizer.config
        if any(
            getattr(old, name) != getattr(new, name) for name in ("vocab_size", "context_length", "pad_to")
        ):
            raise ValueError(
                f"the tokenizer has vocab_size {new.vocab_size}, context_length {new.context_length} and pad_to "
                f"{new.pad_to!r}; the text tower needs {old.vocab_size}, {old.context_length} and {old.pad_to!r}. "
                "Use the tokenizer that the model was trained with"
            )
        self.tokenizer = tokenizer
        self.text.config = replace(self.config.text, tokenizer=new)
        self.config = replace(self.config, text=self.text.config)
        self.tokenizer_error = ""
        return self

    def set_encoders(self, image: Any = None, text: Any = None) -> ProLIP:
        """Give a model of `prolip adapt` its frozen encoders, if `prolip.load` can't find them by their names.

        Args:
            image: The image encoder: a name as `prolip adapt --image-encoder` takes it, or an object with `name`,
                `digest` and `encode(batch)`; None: the model keeps the one that it has.
            text: The text encoder, likewise.

        Returns:
            The model itself.

        Raises:
            ValueError: An encoder is another than the model was trained with, or the model has none.
        """
        from prolip.weights.load import set_encoders  # a layer above: see DEFERRED in tests/test_layers.py

        return set_encoders(self, image, text)

    def find_unknown_words(self, text: str) -> list[str]:
        """Find the words of a text that the tokenizer can't encode, or that never occurred in training.

        Args:
            text: A text, such as a query.

        Returns:
            Each word once, in lower case and in the order of the text. Empty too if what the model met is unknown.
        """
        if self.tokenizer is None:
            return []
        words = split_words(text, self.tokenizer.config.cleaning)
        unencoded = {
            word
            for part in self.tokenizer.find_unknown(text)
            for word in split_words(part, self.tokenizer.config.cleaning)
        }
        known = self.training_words
        return [
            word
            for word in dict.fromkeys(words)
            if word in unencoded or (known is not None and word not in known)
        ]

    def init_weights(self, generator: torch.Generator) -> ProLIP:
        """Draw new weights on the CPU; they replace the weights that the model has.

        Args:
            generator: Every random number comes from it.

        Returns:
            The model itself.
        """
        self.to_empty(device="cpu")
        init = self.config.init
        # The order of these calls is part of the random stream: a seed gives the same weights as ever.
        if isinstance(self.image, FrozenTower):
            init_frozen_tower(self.image, init.log_var, generator)
        else:
            init_image_tower(self.image, init.log_var, generator)
        if isinstance(self.text, FrozenTower):
            init_frozen_tower(self.text, init.log_var, generator)
        else:
            init_text_tower(self.text, init.log_var, generator)
        if self.config.image.uncertainty == "multihead":
            init_log_var_head(self.log_var, init.log_var, generator)
        with torch.no_grad():
            self.logit_scale.fill_(self.config.compute_logit_scale(init.scale))
            if self.logit_bias is not None:
                self.logit_bias.fill_(init.logit_bias)
        return self

    # -- encoding ----------------------------------------------------------------------------------------------------

    def encode_image(self, pixels: Tensor, patch_indices: Tensor | None = None) -> Gaussian:
        """Encode a batch of images.

        Args:
            pixels: (B, 3, S, S), normalized floats, see `preprocess`.
            patch_indices: (B, K), int64: the patches that the tower sees, for masked images. The others are not
                computed. None: all patches.

        Returns:
            Gaussian (B, D) with means of unit length.
        """
        return self._make_gaussian(*self.image(pixels, patch_indices))

    def encode_text(self, ids: Tensor) -> Gaussian:
        """Encode a batch of texts.

        Args:
            ids: (B, T) token ids, see `tokenize`.

        Returns:
            Gaussian (B, D) with means of unit length.
        """
        return self._make_gaussian(*self.text(ids))

    def encode_components(self, components: Tensor, modality: Modality) -> Gaussian:
        """Encode what the heads of a model with frozen encoders read: features after standardization and PCA.

        Args:
            components: (B, K), see `FrozenTower.encode_components`.
            modality: Whose features they are.

        Returns:
            Gaussian (B, D) with means of unit length.
        """
        return self._make_gaussian(*self._get_frozen_tower(modality).encode_components(components))

    def encode_features(self, features: Tensor, modality: Modality) -> Gaussian:
        """Encode features of a frozen encoder, as its `encode` returns them.

        Args:
            features: (B, F).
            modality: Whose features they are.

        Returns:
            Gaussian (B, D) with means of unit length.
        """
        return self._make_gaussian(*self._get_frozen_tower(modality).encode_features(features))

    def _get_frozen_tower(self, modality: Modality) -> FrozenTower:
        """The tower of a modality; ValueError if it has no frozen encoder."""
        tower = self.image if modality == "image" else self.text
        if not isinstance(tower, FrozenTower):
            raise ValueError("this model has no frozen encoders: encode images or texts themselves")
        return tower

    def forward(
        self, pixels: Tensor | None = None, ids: Tensor | None = None, patch_indices: Tensor | None = None
    ) -> tuple[Gaussian | None, Gaussian | None]:
        """`encode_image` and `encode_text` in one call, for wrappers such as DDP that intercept `forward`.

        Args:
            pixels: As for `encode_image`; None: no images.
            ids: As for `encode_text`; None: no texts.
            patch_indices: As for `encode_image`.

        Returns:
            Images (B, D) and texts (B, D); None for those not given.
        """
        images = None if pixels is None else self.encode_image(pixels, patch_indices)
        texts = None if ids is None else self.encode_text(ids)
        return images, texts

    def _make_gaussian(self, mean: Tensor, log_var: Tensor | None) -> Gaussian:
        """A Gaussian (B, D) from the outputs of a tower: mean (B, D) before normalization, and log_var (B, D).

        log_var is None for a deterministic tower; for "multihead" it is the input of the shared head.
        """
        mean = mean.to(compute_dtype(mean))
        if self.config.has_raw_features:
            return Gaussian.point(mean)
        mean = normalize(mean, dim=-1)
        if log_var is None:
            return Gaussian.point(mean)
        if self.config.image.uncertainty == "multihead":
            log_var = self.log_var(log_var)
        # one log-variance per sample stands for all dimensions
        return Gaussian(mean, log_var.to(mean.dtype).expand_as(mean))

    # -- inference ---------------------------------------------------------------------------------------------------

    def embed_images(
        self,
        images: ImageSource | Sequence[ImageSource],
        *,
        batch_size: int = 64,
        progress: bool | None = None,
    ) -> Gaussian:
        """Read, preprocess and encode any number of images.

        Args:
            images: Paths, bytes, PIL images, arrays or tensors; or a single one.
            batch_size: Images encoded at a time.
            progress: A progress bar on stderr. None: if stderr is a terminal and there is more than one batch.

        Returns:
            Gaussian (N, D) on the CPU; (1, D) for a single image.

        Raises:
            ValueError, OSError: If an image can't be read; the message has its index.
        """
        return inference.embed_images(self, inference.as_image_list(images), batch_size, progress)

    def embed_texts(
        self, texts: str | Sequence[str], *, batch_size: int = 256, progress: bool | None = None
    ) -> Gaussian:
        """Tokenize and encode any number of texts.

        Args:
            texts: Texts, or a single one.
            batch_size: Texts encoded at a time.
            progress: As for `embed_images`.

        Returns:
            Gaussian (N, D) on the CPU; (1, D) for a single text.
        """
        return inference.embed_texts(
            self, [texts] if isinstance(texts, str) else list(texts), batch_size, progress
        )

    def preprocess(self, image: ImageSource) -> Tensor:
        """A path, PIL image or array -> normalized pixels (3, S, S), float32, on the CPU."""
        return preprocess(image, self.config.image.preprocessing)

    def tokenize(self, texts: str | Sequence[str]) -> Tensor:
        """Texts -> ids (B, T), int64, on the CPU. Raises ValueError if the model has no tokenizer."""
        if self.tokenizer is None:
            raise ValueError(self._describe_missing_tokenizer())
        return self.tokenizer(texts)

    def match_probability(self, images: Gaussian, texts: Gaussian) -> Tensor:
        """Probability that image i and text i match: sigmoid of the logit of the loss that the model was trained with.

        For PPCL that is the logit of Eq. 2, for a likelihood model PMI + b (docs/likelihood.md), and a cos + b where
        widths were added to frozen means.

        Args:
            images: (N, D).
            texts: (N, D).

        Returns:
            (N,) in [0, 1].
        """
        images, texts = check_gaussian(images, "images"), check_gaussian(texts, "texts")
        if images.shape != texts.shape:
            raise ValueError(
                f"rows are paired, but images are {tuple(images.shape)} and texts {tuple(texts.shape)}; "
                "for all pairs use match_probability_matrix"
            )
        return torch.sigmoid(self._require_logit_parameters().logits(images, texts))

    def match_probability_matrix(self, images: Gaussian, texts: Gaussian) -> Tensor:
        """`match_probability` of all pairs.

        Args:
            images: (N, D).
            texts: (M, D).

        Returns:
            (N, M) in [0, 1].
        """
        images, texts = check_gaussian(images, "images"), check_gaussian(texts, "texts")
        if images.mean.ndim != 2 or texts.mean.ndim != 2 or images.dim != texts.dim:
            raise ValueError(
                f"images must be (N, D) and texts (M, D), not {tuple(images.shape)} and {tuple(texts.shape)}"
            )
        return torch.sigmoid(self._require_logit_parameters().logits_matrix(images, texts))

    @property
    def logit_parameters(self) -> LogitParameters:
        """Scale, bias and, of a likelihood model, the exponent of the logits, as plain numbers."""
        bias = None if self.logit_bias is None else self.logit_bias.item()
        gamma = self.config.gamma if self.config.contrastive_loss == "likelihood" else None
        scale = self.logit_scale.double().exp().item()
        return LogitParameters(scale, bias, gamma, self.config.match_reads_variances)

    def _require_logit_parameters(self) -> LogitParameters:
        """The logit parameters; ValueError for a softmax model."""
        if self.logit_bias is None:
            raise ValueError(
                "this model was trained with a softmax over the batch, so that a pair has no probability of its own. "
                "Rank by prolip.csd_matrix instead"
            )
        return self.logit_parameters

    # -- training and saving -----------------------------------------------------------------------------------------

    @property
    def temperature(self) -> LogitScaleBias:
        """Logit scale and bias, as the losses take them: the model's own parameters, not copies of them.

        The bias of a softmax model is zero.
        """
        if self.config.contrastive_loss == "likelihood":
            assert self.logit_bias is not None
            return LikelihoodTemperature.from_model(self.logit_scale, self.logit_bias, self.config.gamma)
        return LogitScaleBias.from_tensors(
            self.logit_scale,
            torch.zeros_like(self.logit_scale) if self.logit_bias is None else self.logit_bias,
        )

    def set_grad_checkpointing(self, enable: bool = True) -> ProLIP:
        """Recompute the activations of each block in the backward pass: less memory, about a third more time.

        Args:
            enable: False: store the activations again.

        Returns:
            The model itself.
        """
        for module in self.modules():
            if isinstance(module, Transformer):
                module.checkpointing = enable
        return self

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return self.logit_scale.device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the parameters."""
        return self.logit_scale.dtype

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the model's files (docs/models.md), each atomically, as `from_pretrained` reads them.

        Args:
            folder: Created if need be.

        Returns:
            The folder.

        Raises:
            ValueError: If the model has parameters that its config doesn't describe, such as those of LoRA.
        """
        described = ProLIP(self.config).state_dict().keys()
        undescribed = sorted(self.state_dict().keys() - described)
        if undescribed:
            raise ValueError(
                f"the config doesn't describe {join_names(undescribed)}, so they couldn't be loaded again. "
                'Merge what was added (torch.nn.utils.parametrize.remove_parametrizations(layer, "weight")), '
                "or save it elsewhere"
            )
        contents = ModelContents(
            self.config, self.state_dict(), self.tokenizer, self.origin, self.training_words
        )
        return write_model_folder(Path(folder), contents)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        revision: str | None = None,
        commit_message: str = "Upload a prolip model",
        license: str | None = None,
        token: str | None = None,
    ) -> str:
        """Upload the files of `save_pretrained` and, if the repository has none yet, a model card.

        Log in first (`hf auth login`), set HF_TOKEN, or pass a token.

        Args:
            repo_id: `owner/name`; the repository is created if needed.
            private: Whether a new repository is private; None: the hub's default.
            revision: Branch; None: the default one.
            commit_message: Message of the commit on the hub.
            license: The hub's name of the license, such as "apache-2.0", for a new model card; None: none is named.
            token: Access token of the hub; None: HF_TOKEN or the one of `hf auth login`.

        Returns:
            URL of the repository.

        Raises:
            ValueError: As `save_pretrained`.
            OSError: If the upload fails.
        """
        from prolip.weights import hub  # a layer above: see DEFERRED in tests/test_layers.py

        with tempfile.TemporaryDirectory() as name:
            folder = self.save_pretrained(name)
            with hub.open_upload(repo_id, token) as api:
                url = api.create_repo(repo_id, private=private, exist_ok=True)
                if not api.file_exists(repo_id, "README.md", revision=revision):
                    card = hub.make_model_card(self, repo_id, license)
                    (folder / "README.md").write_text(card, encoding="utf-8")
                api.upload_folder(
                    repo_id=repo_id, folder_path=folder, commit_message=commit_message, revision=revision
                )
        return str(url)

    def __repr__(self) -> str:
        config = self.config
        count = sum(p.numel() for p in self.parameters())
        sources = sorted({config.image.uncertainty, config.text.uncertainty})
        return (
            f"ProLIP({count / 1e6:.4g}M parameters, {config.embed_dim} dimensions, "
            f"images of {config.image.preprocessing.size}, texts of {config.text.tokenizer.context_length}, "
            f"uncertainty {' and '.join(sources)}, "
            f"{str(self.dtype).removeprefix('torch.')} on {self.device})"
        )

    def _describe_missing_tokenizer(self) -> str:
        """Message of the error of `tokenize`: why there is no tokenizer, and where to get one."""
        reason = f" ({self.tokenizer_error})" if self.tokenizer_error else ""
        return (
            f"this model has no tokenizer{reason}: put tokenizer.json into its folder, or "
            "give prolip.load(..., tokenizer=) a folder or hub id that has one"
            + (f", such as {self.origin['tokenizer']}" if "tokenizer" in self.origin else "")
        )


def _make_image_tower(config: ModelConfig) -> ImageTower | FrozenTower:
    """The image tower of a config, with undefined values."""
    if isinstance(config.image, ImageConfig):
        return ImageTower(config.image, config.embed_dim)
    return FrozenTower(config.image, config.embed_dim)


def _make_text_tower(config: ModelConfig) -> TextTower | FrozenTower:
    """The text tower of a config, with undefined values."""
    if isinstance(config.text, TextConfig):
        return TextTower(config.text, config.embed_dim)
    return FrozenTower(config.text, config.embed_dim)


def _describe_difference(expected: dict[str, tuple[int, ...]], actual: dict[str, tuple[int, ...]]) -> str:
    """How two state dicts differ, for a message: missing, unknown and reshaped tensors. Arguments: name -> shape."""
    missing = sorted(expected.keys() - actual.keys())
    unknown = sorted(actual.keys() - expected.keys())
    shapes = [
        f"{name} is {actual[name]}, not {expected[name]}"
        for name in sorted(expected.keys() & actual.keys())
        if expected[name] != actual[name]
    ]
    differences = [
        f"{len(missing)} tensors are missing ({join_names(missing)})" if missing else "",
        f"{len(unknown)} are unknown ({join_names(unknown)})" if unknown else "",
        f"{len(shapes)} have another shape ({join_names(shapes)})" if shapes else "",
    ]
    return "; ".join(filter(None, differences))
