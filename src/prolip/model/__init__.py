"""The network: two towers that turn pixels and token ids into Gaussians, and the face that people use."""
