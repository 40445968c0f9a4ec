"""Reader processes with limits, so that a crash, a bomb or an endless loop ends only the reader of one body.

    API process --(descriptors: body, result, reply)--> fork server --fork--> reader process of one body

May import the files of `uploads`. Start with `processes` (the API's side), then `forkserver`, `child`, `transfer`.
"""
