"""Results -> figures, tables and pages."""
