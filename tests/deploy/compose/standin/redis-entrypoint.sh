#!/bin/sh
# As in the official image: options alone are the server's, and root becomes redis.
set -e
case ${1:-} in -* | *.conf) set -- redis-server "$@" ;; esac
if [ "${1:-}" = redis-server ] && [ "$(id -u)" = 0 ]; then
    chown -R redis:redis .
    exec chpst -u redis:redis "$@"
fi
exec "$@"
