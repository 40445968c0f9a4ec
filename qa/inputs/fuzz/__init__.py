"""The running service, asked whatever its contract allows and much that it does not."""
