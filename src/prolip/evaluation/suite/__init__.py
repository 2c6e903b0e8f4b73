"""DataComp's 38 tasks: read from disk, scored, told beside the paper's numbers."""
