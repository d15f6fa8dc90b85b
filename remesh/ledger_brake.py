"""The brake on evictions, one for each injector: what was taken away must come back before more is.

Used by `remesh.ledger`, as its `brakes`. A share bounds what one owner may miss; with one pod to each owner it bounds
nothing. So while nobody has seen an evicted pod come back Ready through this injector, one eviction at a time is on
its way (the canary), and after two in a row that brought none it is shut for a while: controllers or scheduler may be
down, images may not be there, the cluster may be full. And once that while is over it opens only when what was lost is
back: time alone mends nothing, but a person may (`clear`). Each change is one script, by the server's clock.

    brake:<injector>           good, bad in a row, shut until, last pause       an hour after the last eviction
    brake-flight:<injector>    pods evicted and not yet seen to have ended      the same
    brake-lost:<injector>      of those and of the bad ones: how to look again  the same; a day while it holds the brake
    brakes                     keys of the brakes that were shut                a day after the last one was
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from remesh.ledger_lua import ANEW, NOW
from remesh.ledger_window import to_ms
from remesh.redisdb import RedisClient, translated

BAD_IN_A_ROW: Final = 2
LONGEST_SHUT_SECONDS: Final = 600.0
# A policy without cooldowns does not take the brake away.
LEAST_SHUT_SECONDS: Final = 30.0
BRAKE_SECONDS: Final = 3600.0  # what was true of an injector's cluster an hour ago says little
# Longer than all tries of one task; of whom nothing is heard any more ended badly as far as anybody knows.
FLIGHT_SECONDS: Final = 600.0
# As long does what is lost hold the brake at most, after the last word of it; a person may clear it before.
HELD_SECONDS: Final = 86400.0
MOST_LOST: Final = 100  # evictions kept that ended badly; a burst's others are not looked for

# KEYS: brake, flight, lost, brakes. `bad` counts one more; evictions of before it was shut do not prolong it. `shut` is
# when it opens: never later than a whole pause from now, though the server's clock went back.
_PARTS: Final = """
local function shut(at)
  local ends = tonumber(redis.call('HGET', KEYS[1], 'shut')) or 0
  local last = at + (tonumber(redis.call('HGET', KEYS[1], 'pause')) or 0)
  if ends > last then
    ends = last
    redis.call('HSET', KEYS[1], 'shut', text(ends))
  end
  return ends
end
local function lost()
  return math.max(0, redis.call('HLEN', KEYS[3]) - redis.call('ZCARD', KEYS[2]))
end
local function held()
  return redis.call('HEXISTS', KEYS[1], 'shut') == 1 and lost() > 0
end
local function keep(ttl)
  if held() then ttl = %HELD% end
  for i = 1, 3 do redis.call('PEXPIRE', KEYS[i], ttl) end
end
local function bad(holder, at, most, pause, longest)
  if lost() > %MOST% then redis.call('HDEL', KEYS[3], holder) end
  if redis.call('HINCRBY', KEYS[1], 'bad', 1) < tonumber(most) then return end
  if at < shut(at) then return end
  local last = tonumber(redis.call('HGET', KEYS[1], 'pause')) or 0
  local next = math.min(tonumber(longest), math.max(tonumber(pause), 2 * last))
  redis.call('HSET', KEYS[1], 'pause', text(next), 'shut', text(at + next), 'good', '0')
  redis.call('SADD', KEYS[4], KEYS[1])
  redis.call('PEXPIRE', KEYS[4], %HELD%)
end
""".replace("%HELD%", str(round(HELD_SECONDS * 1000))).replace("%MOST%", str(MOST_LOST))

# KEYS: brake, flight, lost, brakes. ARGV: holder, its end, about, TTL, most, pause, longest.
# Returns a word, and milliseconds or a number.
_TAKE: Final = """
local at = now()
not_after(KEYS[2], at + ARGV[2])
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', text(at))) do
  redis.call('ZREM', KEYS[2], gone)
  if gone ~= ARGV[1] then bad(gone, at, ARGV[5], ARGV[6], ARGV[7]) end
end
if not redis.call('ZSCORE', KEYS[2], ARGV[1]) then
  local ends = shut(at)
  if at < ends then return {'shut', text(ends - at)} end
  if held() then return {'lost', text(lost())} end
  local others = redis.call('ZCARD', KEYS[2])
  if others > 0 and redis.call('HGET', KEYS[1], 'good') ~= '1' then return {'canary', text(others)} end
end
redis.call('ZADD', KEYS[2], text(at + ARGV[2]), ARGV[1])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[3])
keep(ARGV[4])
return {'free', '0'}
"""

# KEYS: brake, flight, lost, brakes. ARGV: holder, "1" if all that was lost is back. What `take` would say; nothing is
# changed, and who was not heard of for too long does not count, neither as on its way nor as bad.
_ASK: Final = """
local at = now()
if redis.call('ZSCORE', KEYS[2], ARGV[1]) then return {'free', '0'} end
local ends = shut(at)
if at < ends then return {'shut', text(ends - at)} end
if ARGV[2] ~= '1' and held() then return {'lost', text(lost())} end
local others = redis.call('ZCOUNT', KEYS[2], '(' .. text(at), '+inf')
if others > 0 and redis.call('HGET', KEYS[1], 'good') ~= '1' then return {'canary', text(others)} end
return {'free', '0'}
"""

# KEYS: brake, flight, lost, brakes. ARGV: holder, how it ended, TTL, most, pause, longest.
# A repeated "bad" counts once.
_TELL: Final = """
local at = now()
local known = redis.call('ZREM', KEYS[2], ARGV[1]) == 1
if ARGV[2] ~= 'bad' then redis.call('HDEL', KEYS[3], ARGV[1]) end
if ARGV[2] == 'good' and at >= shut(at) and not held() then
  redis.call('HSET', KEYS[1], 'good', '1', 'bad', '0', 'pause', '0')
  redis.call('HDEL', KEYS[1], 'shut')
  if redis.call('ZCARD', KEYS[2]) == 0 then redis.call('DEL', KEYS[3]) end
elseif ARGV[2] == 'bad' and known then
  bad(ARGV[1], at, ARGV[4], ARGV[5], ARGV[6])
end
keep(ARGV[3])
return 1
"""

# KEYS: brake, flight, lost, brakes. Returns the milliseconds until it opens, and 1 if something is lost.
_SHUT: Final = """
local at = now()
return {text(shut(at) - at), lost() > 0 and redis.call('HEXISTS', KEYS[1], 'shut') or 0}
"""

# KEYS: brake, flight, lost, brakes. Returns nothing if it is not shut, else the milliseconds left, the bad ones in a
# row and the number on their way.
_LOOK: Final = """
local at = now()
local left = shut(at) - at
if left <= 0 and not held() then
  redis.call('SREM', KEYS[4], KEYS[1])
  return {}
end
return {text(math.max(0, left)), redis.call('HGET', KEYS[1], 'bad') or '0', text(redis.call('ZCARD', KEYS[2]))}
"""

# KEYS: brake, flight, lost, brakes. ARGV: TTL, most. What is on its way stays so: until it has ended nothing goes. The
# first one that ends badly shuts it again, and for longer than before, as `pause` is kept.
_CLEAR: Final = """
local at = now()
if not held() and shut(at) <= at then return 0 end
redis.call('HDEL', KEYS[1], 'shut')
redis.call('HSET', KEYS[1], 'good', '0', 'bad', text(ARGV[2] - 1))
for _, holder in ipairs(redis.call('HKEYS', KEYS[3])) do
  if not redis.call('ZSCORE', KEYS[2], holder) then redis.call('HDEL', KEYS[3], holder) end
end
redis.call('SREM', KEYS[4], KEYS[1])
keep(ARGV[1])
return 1
"""


class Braked(NamedTuple):
    """May one more pod be evicted?"""

    code: str  # "free", "shut", "lost" or "canary"
    number: float  # seconds that it is still shut; or pods to come back, or evictions to end, first

    @property
    def free(self) -> bool:
        """True if it may be evicted, and counts as on its way from now on."""
        return self.code == "free"


class ShutBrake(NamedTuple):
    """A brake that lets nobody through now."""

    injector: str
    seconds: float  # for which it is shut, whatever comes back; 0.0: only what is lost holds it
    bad: int  # evictions in a row that brought no Ready pod
    in_flight: int  # pods evicted and not yet seen to have ended
    lost: dict[str, str]  # as `Brakes.lost`


class Brakes:
    """The brakes of one cluster. Every method raises BrokerError. Thread-safe."""

    def __init__(self, redis: RedisClient, base: str) -> None:
        self._redis = redis
        self._base = base
        self._take = redis.register_script(NOW + ANEW + _PARTS + _TAKE)
        self._tell = redis.register_script(NOW + _PARTS + _TELL)
        self._shut = redis.register_script(NOW + _PARTS + _SHUT)
        self._ask = redis.register_script(NOW + _PARTS + _ASK)
        self._look = redis.register_script(NOW + _PARTS + _LOOK)
        self._clear = redis.register_script(NOW + _PARTS + _CLEAR)

    def take(self, injector_key: str, holder: str, shut_seconds: float, about: str = "") -> Braked:
        """Ask right before an eviction. `holder` is the pod's UID: the same one again keeps its place.

        `about` is kept for whoever has to see whether something came in its place: see `lost`.
        `shut_seconds` is how long it is shut at first; each time again doubles that, to ten minutes at most.
        """
        args = [holder, to_ms(FLIGHT_SECONDS), about, *self._limits(shut_seconds)]
        with translated(self._redis, "cannot ask the brake"):
            code, number = self._take(keys=self._keys(injector_key), args=args)
        return _braked(code, number)

    def ask(self, injector_key: str, holder: str, *, all_back: bool = False) -> Braked:
        """What `take` would say, without taking. `all_back`: as if all that was lost had been found again."""
        with translated(self._redis, "cannot ask the brake"):
            code, number = self._ask(keys=self._keys(injector_key), args=[holder, int(all_back)])
        return _braked(code, number)

    def tell(self, injector_key: str, holder: str, good: bool | None, shut_seconds: float) -> None:
        """How an eviction ended: with a Ready replacement or without one. None: it says nothing, or was none."""
        word = "none" if good is None else "good" if good else "bad"
        with translated(self._redis, "cannot tell the brake"):
            self._tell(keys=self._keys(injector_key), args=[holder, word, *self._limits(shut_seconds)])

    def lost(self, injector_key: str) -> dict[str, str]:
        """Evictions that ended badly, and what was said about them; while there are any, a shut brake stays shut."""
        _, flight, lost, _ = self._keys(injector_key)
        with translated(self._redis, "cannot read the brake"), self._redis.pipeline() as pipe:
            pipe.hgetall(lost)
            pipe.zrange(flight, 0, -1)
            found, flying = pipe.execute()
        return {str(holder): str(about) for holder, about in found.items() if holder not in flying}

    def found_again(self, injector_key: str, holder: str) -> None:
        """Something Ready is in its place by now, or nothing is wanted there."""
        with translated(self._redis, "cannot tell the brake"):
            self._redis.hdel(self._keys(injector_key)[2], holder)

    def proven(self, injector_key: str) -> bool:
        """True while an evicted pod has come back Ready through this injector; until then they go one at a time."""
        with translated(self._redis, "cannot read the brake"):
            return str(self._redis.hget(self._keys(injector_key)[0], "good")) == "1"

    def shut_for(self, injector_key: str) -> float:
        """Seconds that it is still shut, a second at least while something is lost; 0.0 if it is not."""
        with translated(self._redis, "cannot read the brake"):
            left, lost = self._shut(keys=self._keys(injector_key), args=[])
        return max(1.0 if int(lost) else 0.0, float(left) / 1000)

    def shut(self, injector_key: str) -> ShutBrake | None:
        """What holds it, or None if it is not shut."""
        with translated(self._redis, "cannot read the brake"):
            found: Any = self._look(keys=self._keys(injector_key))
        if not found:
            return None
        left, bad, flying = (int(each) for each in found)
        return ShutBrake(injector_key, left / 1000, bad, flying, self.lost(injector_key))

    def all_shut(self, injector_keys: Iterable[str] = ()) -> list[ShutBrake]:
        """Every brake that is shut, by name of the injector: those that are known, and of these injectors."""
        start = f"{self._base}brake:"
        with translated(self._redis, "cannot list the brakes"):
            known: Any = self._redis.smembers(f"{self._base}brakes")
        names = {*injector_keys, *(str(each).removeprefix(start) for each in known)}
        found = (self.shut(name) for name in sorted(names))
        return [each for each in found if each is not None]

    def clear(self, injector_key: str) -> bool:
        """A person says that new pods become Ready again, and that nobody need wait for those that are lost.

        It begins as if nothing were proven: one eviction at a time until one came back, and the first one that does not
        shuts it again. False, and nothing changed, if it is not shut.
        """
        with translated(self._redis, "cannot clear the brake"):
            args = [to_ms(BRAKE_SECONDS), BAD_IN_A_ROW]
            return bool(self._clear(keys=self._keys(injector_key), args=args))

    def _limits(self, shut_seconds: float) -> list[Any]:
        pause = max(LEAST_SHUT_SECONDS, min(LONGEST_SHUT_SECONDS, shut_seconds))
        return [to_ms(BRAKE_SECONDS), BAD_IN_A_ROW, to_ms(pause), to_ms(LONGEST_SHUT_SECONDS)]

    def _keys(self, injector_key: str) -> list[str]:
        own = [f"{self._base}{part}:{injector_key}" for part in ("brake", "brake-flight", "brake-lost")]
        return [*own, f"{self._base}brakes"]


def _braked(code: str, number: str) -> Braked:
    return Braked(str(code), float(number) / (1000 if code == "shut" else 1))
