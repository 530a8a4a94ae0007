"""Mix datasets by exact integer weights into Parquet shards, and resume to the same bytes."""
