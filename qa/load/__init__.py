"""Mixed load on a running service, and a ledger of its promises and answers.

::

    from qa.load.running import Load, run

    ledger = run(Load(requests=3000, clients=6, seed=0), ["http://127.0.0.1:8000"])
    ledger.faults        # answers that contradict earlier answers; must be empty
    ledger.errors()      # failed attempts except for missing answers, and 503 with Retry-After
    ledger.jobs          # every accepted job: its content and its last reported state
    ledger.stored        # every data set, posterior and embedding that was accepted and not deleted since
    ledger.arrays        # digests of every received array, by its content and name
    ledger.seconds("GET draw")   # durations of the answered attempts

Each client is a thread with separate data sets, which it uploads, fits, draws from, cancels and deletes, so that it
knows its resources at any time. It requests some draws at the same time. Other data sets are shared and permanent.
The requests are a function of the seed. Results are a function of the ledger's keys, so that
`qa.faults.chaos.checks` can compute them again.

`Load` sets the number of requests or seconds, the rate (None: as fast as possible), and the retries of
docs/reference/client.md. With several URLs a client goes to the next one if it gets no answer. `Load(keeps=10000)` is
for long runs: it bounds the number of data sets of each client and the size of the ledger.
`run(..., stop=event)` ends early.
"""
