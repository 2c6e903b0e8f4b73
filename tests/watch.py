"""Counting torch operations inside a call."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Watch(TorchDispatchMode):
    """Inside `with Watch() as seen:`, records the largest tensor created and counts matrix products and
    exponentials of matrices."""

    def __init__(self):
        super().__init__()
        self.largest = 0
        self.products = 0
        self.exponentials = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.largest = max(self.largest, out.numel())
        self.products += "mm" in str(func)
        self.exponentials += func is torch.ops.aten.exp.default and out.ndim == 2
        return out
