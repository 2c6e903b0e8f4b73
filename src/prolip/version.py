"""Version of prolip, also for a checkout that is not installed and so has no metadata."""

__version__ = "0.2.0"
