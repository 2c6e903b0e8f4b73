"""Classes in words: names and templates, their Gaussians, and the weights with which prompts are pooled."""
