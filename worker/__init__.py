"""Jobs: what a job is, the queue and its workers, and the stores they share with the HTTP service."""
