"""The training objective and its baselines: functions of Gaussians."""
