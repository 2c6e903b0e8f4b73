"""Training: the same mathematics on one core or many GPUs, resumable to the bit."""
