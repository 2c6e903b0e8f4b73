"""Losses: PPCL, SigLIP, PML, CLIP, inclusion, VIB, and the weighted sum that is trained."""
