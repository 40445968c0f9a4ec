"""Maximum entropy unfolding and its relatives: MEU, MVU (maximum variance), ALLE (acyclic LLE) and DRILL.

May import the files of `methods` and what `methods` may import. Start with `gaussian_field`, and then read `meu`.
"""
