"""The service while servers, disks and network are not as they should be: right answers or 503, never wrong ones."""
