"""`make -C qa audit`: what is locked, against what is known of its faults."""
