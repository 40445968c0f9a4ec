"""The documents, and under `figures` what their numbers and pictures are made with."""
