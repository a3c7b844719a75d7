"""The bundled demo: a shop on New Year's Eve that uses every part of Hayase in one pipeline.

Read `shop_pipeline` first: it is the example. The other modules give it data, check its results and show it at work.

| module | contents |
|---|---|
| `shop_pipeline` | the pipeline: two streams, two queries, two tables, two jobs, an operation |
| `access`, `scoring` | the functions of the jobs and of the operation |
| `scoring_fix` | a version of the operation without its faults, to be installed while the shop runs |
| `events` | generates orders and lines of an access log, including late, repeated and malformed ones |
| `expected_results` | computes the results from the same events in plain Python |
| `result_check` | compares the results of the pipeline with the expected ones |
| `observer`, `screen`, `display` | read the state of the shop, draw it, and update the terminal |
| `hints` | commands to try in a second terminal |
| `sender`, `runner` | send the events; run everything on Spark from the first event to the check |

This module imports nothing: workers load `access` and `scoring`, and should not load the rest.
"""
