"""Data into Gaussians, kept on disk."""
