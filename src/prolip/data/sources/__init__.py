"""Readers of data on disk and of streams: tar shards, CSV, Parquet, Arrow, folders, COCO, captions."""
