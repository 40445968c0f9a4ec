"""What `make bench` runs: each figure beside its goal, measured side by side in one run."""
