"""The method of negative tuples, as the paper compares it: a baseline for benchmarks and a second opinion for tests."""
