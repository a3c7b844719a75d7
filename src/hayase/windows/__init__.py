"""Shared windows: many sliding-window aggregates over one sequence, computed from one set of stored partials."""
