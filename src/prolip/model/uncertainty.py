"""PCME++'s multi-head uncertainty module, for the paper's ablation and its table of costs."""

from __future__ import annotations

from torch import Tensor, nn

from prolip.model.config import BlockConfig
from prolip.model.transformer import Transformer


class MultiheadUncertainty(nn.Module):
    """Two further blocks on a tower's last tokens, read at the pooled position.

    The tower's own projection takes the result to the embedding, and one E x E map, common to both towers, to
    log-variances: 20.7, 28.9 and 40.0 million parameters for B/16, B/16-768 and L (the paper's table).
    """

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.blocks = Transformer(config, layers=2)

    def forward(self, x: Tensor, rows: slice, mask: Tensor | None = None) -> Tensor:
        """(B, T, W) -> (B, R, W)."""
        return self.blocks(x, mask=mask, rows=rows)  # type: ignore[no-any-return]
