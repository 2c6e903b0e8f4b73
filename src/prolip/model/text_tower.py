"""The text tower, a transformer: token ids to mean and log-variance."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from prolip.model.config import TextConfig
from prolip.model.transformer import Head, Transformer


class TextTower(nn.Module):
    """A transformer over tokens, then [UNC] and [CLS] (section 3.1 of the paper).

    forward: ids (B, T), T at most the context length -> mean (B, E), not yet of unit length, and log_var (B, E), or
    None for a deterministic tower (for "multihead", the input of the model's shared head of log_var).
    """

    def __init__(self, config: TextConfig, embed_dim: int) -> None:
        """Make the layers with undefined values: `init.init_text_tower` draws them, or weights are loaded."""
        super().__init__()
        self.config = config
        blocks, tokens = config.blocks, config.tokenizer
        # Embedding's own constructor would draw weights with normal_, which on the meta device imports torch._dynamo:
        # two seconds in every process that makes a model. `init_weights` draws them.
        weight = torch.empty(tokens.vocab_size, blocks.width)
        self.tokens = nn.Embedding.from_pretrained(weight, freeze=False)
        if config.num_added_tokens == 2:  # [UNC] and [CLS]; a single added token is [CLS]
            self.uncertainty_token = nn.Parameter(torch.empty(blocks.width))
        if config.num_added_tokens:
            self.class_token = nn.Parameter(torch.empty(blocks.width))
        self.positions = nn.Parameter(
            torch.empty(tokens.context_length + config.num_added_tokens, blocks.width)
        )
        self.blocks = Transformer(blocks)
        self.norm_post = nn.LayerNorm(blocks.width, eps=blocks.norm_eps)
        self.mean = (
            Head(blocks.width, embed_dim, bias=config.projection_bias) if config.projection else nn.Identity()
        )
        if config.uncertainty == "token":
            self.log_var = Head(blocks.width, 1 if config.isotropic else embed_dim)
        elif config.uncertainty == "mean":
            self.log_var = Head(embed_dim, embed_dim)
        elif config.uncertainty == "multihead":
            self.multihead = Transformer(blocks, layers=2)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor | None]:
        """Encode texts.

        Args:
            ids: (B, T), int64 or int32, T at most the context length.

        Returns:
            mean (B, E) and log_var (B, E) or None, see the class.
        """
        ids = self._trim_padding(self._check_ids(ids))
        mask = self._make_mask(ids)
        x = self.blocks(self._embed_ids(ids), mask, self._output_rows)
        pooled = x[:, -1] if self.config.pooling != "end" else _gather_token(x, self._find_end_token(ids))
        mean = self.mean(self.norm_post(pooled))
        return mean, self._compute_log_var(x, mean, mask)

    @property
    def _output_rows(self) -> slice | None:
        """Positions that the last block computes: [UNC] and [CLS], or only the last position; None: all positions."""
        if self.config.pooling == "end" or self.config.uncertainty == "multihead":
            return None
        return slice(-2, None) if self.config.uncertainty == "token" else slice(-1, None)

    def _compute_log_var(self, x: Tensor, mean: Tensor, mask: Tensor | None) -> Tensor | None:
        """Log-variances (B, E) from the tokens x (B, R, W) after the last block or from the projected mean (B, E).

        `mask` is the attention mask, which only "multihead" reads. For "multihead" the result is the input of the
        model's shared head instead: [CLS] after the two further blocks, through the norm and the projection of the
        mean. None for a deterministic tower.
        """
        match self.config.uncertainty:
            case "token":
                # row -2 is [UNC]
                return self.log_var(self.norm_post(x[:, -2]))  # type: ignore[no-any-return]
            case "mean":
                return self.log_var(mean)  # type: ignore[no-any-return]
            case "multihead":
                class_row = slice(-1, None)
                return self.mean(self.norm_post(self.multihead(x, mask, class_row)[:, 0]))  # type: ignore[no-any-return]
        return None

    def _check_ids(self, ids: Tensor) -> Tensor:
        """Return ids (B, T) if dtype, length and, on the CPU, values are valid; else raise ValueError.

        Values on a GPU are not read: that would synchronize.
        """
        max_length = self.config.tokenizer.context_length
        if not isinstance(ids, Tensor):
            raise TypeError(
                f"ids must be a tensor of token ids, not {type(ids).__name__}: pass model.tokenize(texts), or call "
                "model.embed_texts(texts)"
            )
        if (
            ids.ndim != 2
            or ids.dtype not in (torch.int64, torch.int32)
            or not 1 <= ids.shape[1] <= max_length
        ):
            raise ValueError(
                f"ids must be int64 or int32 of shape (B, T), T from 1 to {max_length}, "
                f"not {ids.dtype} {tuple(ids.shape)}"
            )
        if self.config.pooling == "last" and ids.shape[1] != max_length:
            raise ValueError(
                f"this tower pools the last position: ids must have the context length {max_length}, "
                f'not {ids.shape[1]}. Pad them to it (tokenizer.pad_to "context")'
            )
        if ids.is_cpu and ids.numel() and not torch.compiler.is_compiling():
            low, high = (int(value) for value in ids.aminmax())
            if low < 0 or high >= self.config.tokenizer.vocab_size:
                raise ValueError(
                    f"ids must be in 0..{self.config.tokenizer.vocab_size - 1}, not {low}..{high}"
                )
        return ids

    def _trim_padding(self, ids: Tensor) -> Tensor:
        """ids (B, T) without the last columns that are padding in every row; at least one column stays.

        On the CPU only: on a GPU, reading the ids would synchronize.
        """
        if self.config.padding == "attended" or not ids.is_cpu or torch.compiler.is_compiling():
            return ids
        used_columns = (ids != self.config.tokenizer.pad_id).any(0).nonzero()
        return ids[:, : int(used_columns[-1]) + 1] if len(used_columns) else ids[:, :1]

    def _make_mask(self, ids: Tensor) -> Tensor | None:
        """Attention mask, True where attended to: (B, 1, 1, L), or (1 or B, 1, L, L) if causal; None: all are.

        L is the number of ids and added tokens.
        """
        mask, num_added = None, self.config.num_added_tokens
        if self.config.padding == "masked":
            is_attended = nn.functional.pad(ids != self.config.tokenizer.pad_id, (0, num_added), value=True)
            mask = is_attended[:, None, None, :]
        if self.config.causal:
            length = ids.shape[1] + num_added
            causal = torch.ones(length, length, dtype=torch.bool, device=ids.device).tril()
            if mask is None:
                return causal[None, None]
            diagonal = torch.eye(length, dtype=torch.bool, device=ids.device)
            mask = causal & (mask | diagonal)  # a row that attends to nothing would be NaN
        return mask

    def _embed_ids(self, ids: Tensor) -> Tensor:
        """The tokens of the first block, words, then [UNC], [CLS], with their positions: (B, T + added tokens, W)."""
        length, num_added = ids.shape[1], self.config.num_added_tokens
        x = self.tokens(ids) + self.positions[:length]
        if not num_added:
            return x  # type: ignore[no-any-return]
        names = ("uncertainty_token", "class_token")[-num_added:]
        # masked padding: a batch may be shorter than the context, but [UNC] and [CLS] keep the last positions
        start = len(self.positions) - num_added if self.config.padding == "masked" else length
        suffix_positions = self.positions[start : start + num_added]
        suffix = torch.stack([getattr(self, name) for name in names]) + suffix_positions
        return torch.cat([x, suffix.to(x.dtype).expand(x.shape[0], -1, -1)], dim=1)

    def _find_end_token(self, ids: Tensor) -> Tensor:
        """Position of the first end token of each text, (B,). On the CPU, raises ValueError if a text has none."""
        end_id = self.config.tokenizer.end_id
        assert end_id is not None  # TextConfig requires it for the pooling "end"
        is_end = ids.eq(end_id)
        if ids.is_cpu and not torch.compiler.is_compiling() and not bool(is_end.any(1).all()):
            row = int((~is_end.any(1)).nonzero()[0])
            raise ValueError(
                f"text {row} has no end token (id {end_id}), which this tower pools: "
                "make ids with the model's own tokenizer"
            )
        return is_end.to(torch.int32).argmax(dim=1)  # argmax gives the first of equal values


def _gather_token(x: Tensor, index: Tensor) -> Tensor:
    """Select one token of each text: x (B, T, W), index (B,) -> (B, W)."""
    return x.gather(1, index.long()[:, None, None].expand(-1, 1, x.shape[-1]))[:, 0]
