"""The exported OpenAPI contract, and the generators of the clients' types."""
