"""Runs stages: plans batches, maps ranges, reduces buckets and commits manifests, on Spark (`spark`) or without (`local`)."""
