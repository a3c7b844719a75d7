"""A wall clock that can jump: Python imports this first in every process that has this folder on its PYTHONPATH.

The file that `HAYASE_CLOCK` names holds seconds, which are added to the time; rounds of the campaign change it while a
pipeline runs. Hayase itself knows nothing of it: it reads the clock by `time.time_ns`, in one place (hayase.core.clock).
"""

import os
import time

FILE = os.environ.get("HAYASE_CLOCK")


def _shifted(clock, unit):
    def now():
        try:
            with open(FILE, encoding="ascii") as file:
                return clock() + int(file.read() or 0) * unit
        except (OSError, ValueError):
            return clock()

    return now


if FILE:
    time.time, time.time_ns = _shifted(time.time, 1), _shifted(time.time_ns, 10**9)
