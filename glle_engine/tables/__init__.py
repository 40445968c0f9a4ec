"""Tables: from columns to features, labels, colors, ids and notes, or to one error that lists all problems.

Every reader makes columns (`columns`), from the cells of a text file, from a frame (`frames`) or from an Arrow file.
`table.read_table` then decides on the roles of the columns, given or guessed (`roles`), on numbers and dates in texts
(`cells`), and on labels and ids (`row_texts`). May import `glle_engine.base`. Start with `table`.
"""
