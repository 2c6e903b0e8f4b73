"""All pairs of two sets of Gaussians, block by block: an (N, M) result without an (N, M, D) tensor."""
