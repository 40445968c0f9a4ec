"""Audit of an embedding: which parts of the embedding the data support.

May import every package of the engine but `estimator`. Start with `audit`, which tells the story in this order: how to
compute the embedding again (`sources`), what can be found before halves of the data are embedded (`audited_map`), the
maps of halves (`halves`), and the answers with the statement (`conclusion`, `answers`, `statement`).
"""
