"""What Hayase is measured by, for `hayase bench`.

A module that can be run has `run(*, quick, out)`: it prints nothing and returns plain data. Its `ratios` are measured
side by side in one run; everything else holds for one machine only.
"""
