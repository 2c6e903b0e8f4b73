"""The paper's claims in miniature: measured on scenes with known truth, with controls and verdicts."""
