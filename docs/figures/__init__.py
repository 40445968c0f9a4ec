"""Pictures and numbers of the documentation, one program for each: `python -m docs.figures.posterior`."""
