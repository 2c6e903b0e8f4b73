"""Everyone's weights: one adapter a format, each accounting for every tensor; loading by name; the way out again."""
