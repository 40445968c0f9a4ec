"""Bodies of uploads that attack a parser: handmade ones by format, random changes, and small bodies that grow."""
