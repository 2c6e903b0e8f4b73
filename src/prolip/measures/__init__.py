"""Distance, inclusion, containment, KL and densities of Gaussians, for pairs and for all pairs."""
