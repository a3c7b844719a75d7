"""Copies of homes: a home as it is at one instant, in another directory or in an object store, and back."""
