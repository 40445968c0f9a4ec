"""Browser, page object and tables for the explorer tests."""
