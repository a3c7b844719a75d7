"""Shared windows: any number of sliding-window aggregates over one sequence, from one set of stored partials."""
