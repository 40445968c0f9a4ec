"""`make audit`: what is locked, against what is known of its faults."""
