"""Interval relations: tuples that carry the time in which they hold, and the operators over them."""
