"""`make demo`: upload data to a service, fit posteriors on its workers, draw embeddings, and save pictures."""
