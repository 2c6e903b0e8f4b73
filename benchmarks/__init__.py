"""Speed and memory, always as a ratio against a stated reference in the same run."""
