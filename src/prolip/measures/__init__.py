"""Measures on Gaussians: formulas, all-pairs kernels, the public functions, nearest neighbors."""
