"""`make -C qa audit`: known vulnerabilities of all locked packages."""
