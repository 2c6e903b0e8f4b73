"""Kills and faults at file operations: a run that was hit goes on to the same result."""
