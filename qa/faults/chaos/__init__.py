"""Kill real processes at random under a mixed load: `python -m qa.faults.chaos`, or `make -C qa chaos`."""
