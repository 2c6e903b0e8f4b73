"""Damaged inputs from outside, by the hundred: each must be used, or refused with a clear error."""
