"""The negative-tuple method that paper 1 compares with: a baseline for benchmarks and an oracle for tests."""
