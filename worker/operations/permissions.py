"""The permissions (ACL rules) that the service's users of the two Redis servers need (docs/how-to/storage.md)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redis.exceptions import NoPermissionError, ResponseError

if TYPE_CHECKING:
    import redis

_MAX_ARGUMENTS = 8  # a command is tried with fewer arguments than this, until the server accepts their number


@dataclass(frozen=True)
class Permissions:
    """What the service's user of one Redis server must be allowed: commands, and prefixes of keys and of channels."""

    commands: str
    keys: tuple[str, ...]
    channels: tuple[str, ...]

    def missing(self, client: redis.Redis) -> list[str]:
        """Return the ACL rules that the user of `client` lacks, such as ``+blmove`` and ``~rq:*``.

        Each command is queued in a transaction, which is then discarded, so that nothing is executed. A server checks
        permissions when it queues a command.
        """
        connection = client.connection_pool.get_connection()

        def ask(*words: str) -> None:
            connection.send_command(*words)  # type: ignore[no-untyped-call] # of redis-py
            connection.read_response()

        def refusal(*words: str) -> str:
            """Return the server's message if the user may not run a command, such as ("SET", "key", "1"), else ""."""
            try:
                ask("MULTI")
                ask(*words)
            except NoPermissionError as error:
                return str(error)
            finally:
                with suppress(ResponseError):  # if the command was EXEC, no transaction is left to discard
                    ask("DISCARD")
            return ""

        def is_refused(command: str) -> bool:
            for count in range(_MAX_ARGUMENTS):
                try:
                    return bool(refusal(*command.split("|"), *[f"{self.channels[0]}doctor"] * count))
                except ResponseError as error:
                    if "number of arguments" not in str(error):
                        # Redis refuses the command for another reason than a missing permission: for example, it may
                        # not be in a transaction. Other numbers of arguments would not help.
                        break
            return False

        try:
            if "'multi'" in refusal("PING"):
                return ["+multi"]
            rules = [f"~{prefix}*" for prefix in self.keys if "access" in refusal("EXISTS", f"{prefix}doctor")]
            rules += [f"&{each}*" for each in self.channels if "access" in refusal("PUBLISH", f"{each}doctor", "")]
            return rules or [f"+{command}" for command in self.commands.split() if is_refused(command)]
        finally:
            client.connection_pool.release(connection)


QUEUE = Permissions(
    "acl|dryrun blmove blpop client|info client|list client|setname decrby del discard eval evalsha exec "
    "exists expire get hdel hello hexists hget hgetall hincrby hincrbyfloat hmget hscan hset hsetnx incrby info "
    "lindex linsert llen lpop lpos lpush lrange lrem ltrim mget multi persist pexpire ping pttl publish rpush "
    "sadd scan scard script|exists script|load set sismember smembers srandmember srem subscribe time ttl unlink "
    "unsubscribe unwatch wait watch xadd xrevrange xtrim zadd zcard zcount zpopmin zrange zrangebylex zrangebyscore "
    "zrem zremrangebyscore zrevrangebylex zscore",
    ("glle:", "rq:"),
    ("glle:", "rq:"),
)
CACHE = Permissions(
    "blpop client|setname del discard eval exec exists expire get hdel hello hget hgetall hkeys hlen hset "
    "hsetnx info llen multi pexpire ping publish rename rpush scan set subscribe time unlink unsubscribe xack xadd "
    "xclaim xdel xgroup|create xgroup|delconsumer xlen xpending xrange xreadgroup zadd zrange zrem zscore",
    ("",),
    ("glle:",),
)
