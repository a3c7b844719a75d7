"""Operations: any Python function on windows of records, in a process of its own that may fail without harm.

| module | what it does |
|---|---|
| `windows`, `counted`, `timed` | which windows are complete, by count or time, per queue or key; what is held back |
| `arrivals`, `shelves` | the records of a step in order; rows that wait, by group |
| `functions`, `results` | what a user writes and how it is called; what it gives, fitted to the schema of the output |
| `running` | the function on one window after the other, in groups: the loop inside the process |
| `template`, `processes`, `frames` | the processes: their program, our side of them, what they say to each other |
| `children` | calls in a child process, with limits; every failure pinned to its window |
| `attempts` | who is tried again, divided, or refused |
| `shipping` | the code of an operation, copied into the home with the local modules that it imports |
| `checking` | loads a function and tries it on a sample, before it is taken |
| `kernel` | all of it behind `hayase.core.stages.Kernel` |

Results come out exactly once, side effects of functions at least once: a window is called again when it failed, when the
process ended before its results were handed over, and when the batch is run again.
"""
