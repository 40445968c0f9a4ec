"""The main job, shown: data posted over HTTP, posteriors fitted on workers, many embeddings drawn."""
