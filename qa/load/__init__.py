"""A mixed load of many clients on a running service, and a ledger of what the service has promised and answered.

::

    from qa.load.running import Load, run

    ledger = run(Load(requests=3000, clients=6, seed=0), ["http://127.0.0.1:8000"])
    ledger.faults        # answers that contradict earlier answers; must be empty
    ledger.errors()      # failed attempts except for missing answers, and 503 with Retry-After
    ledger.jobs          # every accepted job: its content and its last reported state
    ledger.stored        # every data set, posterior and embedding that was accepted and not deleted since
    ledger.arrays        # digests of every received array, by its content and name
    ledger.seconds("GET draw")   # durations of the answered attempts

Each client is a thread with data sets of its own, which no other client fits, draws from or deletes, so that the client
knows at any time which of its resources exist. Other data sets are shared by all clients and never deleted. A seed
determines the requests. The keys of the ledger say what was requested, so that `qa.faults.chaos.checks` can compute the
results again.

`Load` sets the number of requests or seconds, the rate (None: as fast as possible), and the time limit of retries
(docs/reference/client.md). A client with several URLs goes to the next one if there is no answer. `Load(keeps=10000)`
is for long runs: it limits the number of data sets of each client and the size of the ledger. `run(..., stop=event)`
ends early.
"""
