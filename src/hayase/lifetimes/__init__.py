"""Interval relations: tuples with lifetimes, and the operators of query plans over them."""
