"""Kernels that keep one state per key and answer row by row or window by window. Nothing here knows Spark."""
