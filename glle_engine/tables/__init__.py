"""Tables: one way from columns to features, labels, colors, ids and notes, or to one refusal with all problems.

Every reader makes columns (`columns`): of cells of text, of a frame (`frames`), of an Arrow file. `table.read_table`
decides: roles that are given or guessed (`roles`), numbers and dates in texts (`cells`), labels and ids (`row_texts`).
May import `glle_engine.base`. Start with `table`.
"""
