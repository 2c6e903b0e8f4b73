"""Evaluation: metrics, one evaluator per family of tasks, DataComp's suite; results are JSON-able."""
