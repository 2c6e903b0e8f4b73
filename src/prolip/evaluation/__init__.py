"""Evaluation: metrics as pure functions, one file a family of tasks, the suite. Each gives one JSON-able dict."""
