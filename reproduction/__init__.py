"""`python -m reproduction`: the paper's claims, each measured on scenes whose truth is known, with controls and a verdict."""
