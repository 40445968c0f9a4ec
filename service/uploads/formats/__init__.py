"""Parsers of uploaded data sets, one file per format.

May import the files of `uploads`. Each parser returns a `Table`, or raises a problem that names row and column.
"""
