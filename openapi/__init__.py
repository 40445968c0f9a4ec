"""The exported contract of the API, and what is generated from it."""
