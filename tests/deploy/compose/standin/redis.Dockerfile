# Debian's redis-server in the layout of the official image on Alpine: the programs of busybox alone, redis is 999:1000,
# and an entry point that gives up root.
FROM standin AS parts
WORKDIR /out
RUN mkdir -p bin etc tmp usr/local/bin data \
    && cp /bin/busybox bin/ \
    && for name in $(busybox --list); do ln -s busybox bin/$name 2>/dev/null || true; done \
    && cp --dereference /usr/bin/redis-server /usr/bin/redis-cli usr/local/bin/ \
    && ldd /usr/bin/redis-server /usr/bin/redis-cli | grep -o '/lib[^ )]*' | sort -u | xargs cp --parents --dereference --target-directory=. \
    && printf 'root:x:0:0:root:/root:/bin/sh\nredis:x:999:1000::/data:/sbin/nologin\n' > etc/passwd \
    && printf 'root:x:0:\nredis:x:1000:\n' > etc/group \
    && chown 999:1000 data && chmod 1777 tmp
COPY redis-entrypoint.sh usr/local/bin/docker-entrypoint.sh

FROM scratch
COPY --from=parts /out /
ENV PATH=/usr/local/bin:/bin
VOLUME /data
WORKDIR /data
ENTRYPOINT ["docker-entrypoint.sh"]
EXPOSE 6379
CMD ["redis-server"]
