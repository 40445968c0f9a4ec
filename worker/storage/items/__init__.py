"""Items: the files of data sets and imported posteriors, in a folder or in the object store.

May import `base`, `records`, `connections` and `object_store`. Start with `base`, then `folder` and `objects`.
"""
