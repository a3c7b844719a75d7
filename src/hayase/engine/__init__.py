"""Runs stages: plans batches, maps ranges, reduces buckets, commits manifests; on Spark (`lane`) or without (`inprocess`)."""
