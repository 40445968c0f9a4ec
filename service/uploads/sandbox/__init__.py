"""Reading of uploaded bodies in processes with limits: a crash, a bomb or an endless loop ends the reader alone.

    API process --(body, result, reply: descriptors)--> fork server --fork--> reader process, one a body

`processes` is the API's side, `forkserver` the program that forks, `child` the reader process, and `transfer` the file
in which a request goes to a reader and its outcome comes back.
"""
