"""The bundled demo: a shop on New Year's Eve, with everything that Hayase has in one pipeline, live.

| module | what it does |
|---|---|
| `shop` | makes the events: orders and lines of an access log, late, repeated and broken ones too |
| `declaring` | the pipeline: streams, queries, a table with its rules, a job, an operation |
| `access`, `scoring` | the functions of the job and of the operation |
| `mended` | the operation again, without its faults, to be put in place while the shop runs |
| `judge` | what must come out, by plain Python over the same events |
| `books` | what came out beside that: does everything add up? |
| `watching`, `screen` | what there is to see while it runs: gathered, and shown |
| `hints` | what to try in a second terminal |
| `running` | all of it on Spark, from the first event to the books |

Nothing is imported here: the workers of the pipeline load `access` and `scoring`, and should load nothing else.
"""
