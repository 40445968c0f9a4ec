# Debian's redis-server in place of the official image: the same command, the same owner of /data.
FROM standin
RUN install --directory --owner=999 --group=1000 /data
WORKDIR /data
CMD ["redis-server"]
