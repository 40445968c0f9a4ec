"""Demo of the main job: upload data over HTTP, fit posteriors on workers, draw many embeddings."""
