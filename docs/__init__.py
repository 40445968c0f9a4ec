"""Documentation pages, and in `figures` the programs behind their numbers and pictures."""
