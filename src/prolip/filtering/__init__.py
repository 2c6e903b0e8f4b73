"""The best pairs of a pool: scores, an exact cut, near-duplicates, and what is left as ids, a table or shards."""
