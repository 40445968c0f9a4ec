"""Methods of maximum entropy and maximum variance: MEU, MVU, ALLE, DRILL.

May import the files of `methods` and what `methods` may import. Start with `meu` and `gaussian_field`.
"""
