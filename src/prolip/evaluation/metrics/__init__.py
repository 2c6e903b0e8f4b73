"""Metrics: pure functions on tensors. Shares are from 0 to 1; what is undefined is None."""
