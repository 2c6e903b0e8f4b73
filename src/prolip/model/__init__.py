"""The network: configs, sizes, two towers that map pixels and token ids to Gaussians, ProLIP, its folder."""
