"""Turn the columns of a table into features, labels, colors, ids and notes, or into one error with all problems.

Every reader makes columns (`columns`), from the cells of a text file, from a frame (`frames`) or from an Arrow file.
`table.read_table` then decides on the roles of the columns (`roles`), which the caller gives or which are guessed, on
numbers and dates in texts (`cells`), and on labels and ids (`row_texts`). May import `glle_engine.base`. Start with
`table`.
"""
