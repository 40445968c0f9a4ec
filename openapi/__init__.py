"""The exported OpenAPI contract, and the generator of the client's types."""
