"""Is the spread honest? Draws and half-samples against LLE's own sampling spread (`make honesty`)."""
