"""Reader processes with limits, so that a crash, a zip bomb or an endless loop ends only the reader of one body.

    API process --(body, output, messages, reply)--> fork server --fork--> watcher --fork--> reader of one body

May import the files of `uploads`. Start with `processes` (the API's side), then `forkserver`.
"""
