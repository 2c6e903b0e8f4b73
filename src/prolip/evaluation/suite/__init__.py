"""DataComp's 38 evaluation tasks: data, metrics, results file, tables."""
