"""A mixed load on a running service, and a ledger of what it promised and what it sent.

::

    from qa.load.running import Load, run

    ledger = run(Load(requests=3000, clients=6, seed=0), ["http://127.0.0.1:8000"])
    ledger.faults        # answers that contradict earlier answers; must be empty
    ledger.errors()      # attempts that no client should see: other than no answer, and 503 with Retry-After
    ledger.jobs          # every accepted job: its content and its last reported state
    ledger.there         # every data set, posterior and embedding that was accepted and not deleted since
    ledger.arrays        # of every array received: what it is a function of, and the digests that came
    ledger.seconds("GET draw")   # of the attempts that were answered

Each client is a thread with data separate sets, which it uploads, fits, draws from, cancels and deletes, so that it
knows at any time what is there; and some data sets are everyone's, are asked for by several at once, and stay. What
the clients ask for is a function of the seed; what is drawn is a function of the ledger's keys, so that
`qa.faults.chaos.reference` can compute it again.

`Load` says how much: a number of requests, or of seconds; a rate, or as fast as they come; and whether a request
without an answer is tried again, as docs/reference/client.md says that a client should. With several URLs a client
goes to the next one when it gets no answer. `Load(keeps=10000)` is for long runs: data sets come from a limited number
for each client, so that live ones are few and everything the ledger keeps stays bounded; of attempts the last so many
are kept.
`run(..., stop=event)` ends early. `python -m qa.load --url ... --seconds 60 --rate 20` prints what came.
"""
