"""Operations: user-written Python functions on windows of records, run in child processes so that failures are contained.

| module | contents |
|---|---|
| `record_windows`, `count_windows`, `time_windows` | which windows are complete, by count or time; what is held back |
| `arrivals` | the records of a step in order |
| `user_functions`, `result_rows` | the user's function and how it is called; its results, converted to the output schema |
| `window_runner` | the loop inside the process: calls the function on one window after the other |
| `template`, `processes`, `frames` | the processes: their program, the parent's side of them, their protocol |
| `children` | calls in a child process, with limits; every failure is attributed to its window |
| `attempts`, `outcomes` | what is called again, divided or refused; the results of calls |
| `shipped_code` | the code of an operation, copied into the home with the local modules that it imports |
| `operation_planner`, `operation_builder` | from declarations to stages; declarations made in Python |
| `operation_kernel` | all of it behind `hayase.core.stages.Kernel` |

Results are produced exactly once, side effects of functions happen at least once: a window is called again when it
failed, when the process ended before its results were handed over, and when the batch is repeated.
"""
