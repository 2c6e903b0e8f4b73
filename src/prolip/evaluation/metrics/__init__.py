"""Metrics: pure functions on tensors. Fractions are from 0 to 1; undefined values are None."""
