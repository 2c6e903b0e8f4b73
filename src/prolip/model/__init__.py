"""The network: configs, sizes, two towers (pixels or token ids to Gaussians), ProLIP, its folder."""
