"""The ledger's Lua scripts. Each is one change that others see whole or not at all.

Used by `remesh.ledger`, and the leases by `remesh run`. Times are the server's, in milliseconds; KEYS and
ARGV are said above each script.
"""

# Goes before scripts that need the time. `text` writes milliseconds without an exponent.
NOW = """
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function text(ms) return string.format('%.0f', ms) end
"""

# Goes before scripts that read a time which an earlier one wrote. If the server's clock went back since, the time from
# `from` to `to` begins anew: else a minute would become the hours or days by which it went back.
ANEW = """
local function anew(key, from, to)
  local at, began = now(), tonumber(redis.call('HGET', key, from))
  local ends = tonumber(redis.call('HGET', key, to))
  if began and ends and at < began then redis.call('HSET', key, from, text(at), to, text(at + ends - began)) end
end
local function not_after(key, last)
  for _, holder in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. text(last), '+inf')) do
    redis.call('ZADD', key, text(last), holder)
  end
end
"""

# KEYS: finding. ARGV: candidate id, TTL. Returns the id that counts.
OPEN = """
local known = redis.call('GET', KEYS[1])
redis.call('SET', KEYS[1], known or ARGV[1], 'PX', ARGV[2])
return known or ARGV[1]
"""

# The same, and what else is to be known then. KEYS: finding, quarantine. ARGV: candidate id, TTL, beginning of the keys
# of releases, field of the quarantine. Returns the id, the time, the quarantine or "", and of the last release attempt,
# task, beginning, deadline, if there is one. All keys of a cluster are in one slot.
BEGIN = """
local id = redis.call('GET', KEYS[1]) or ARGV[1]
redis.call('SET', KEYS[1], id, 'PX', ARGV[2])
local answer = {id, text(now()), redis.call('HGET', KEYS[2], ARGV[4]) or ''}
anew(ARGV[3] .. id, 'at', 'deadline')
local known = redis.call('HMGET', ARGV[3] .. id, 'attempt', 'task_id', 'at', 'deadline')
for i = 1, known[4] and 4 or 0 do answer[#answer + 1] = known[i] end
return answer
"""

# KEYS: finding, findings. ARGV: uid, finding id. Returns 1 if it was that finding.
CLOSE = """
if redis.call('GET', KEYS[1]) ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[2], ARGV[1])
return redis.call('DEL', KEYS[1])
"""

# KEYS: released. ARGV: attempt, task id, deadline, TTL. Returns 1 if it may be sent.
RELEASE = """
anew(KEYS[1], 'at', 'deadline')
local deadline = tonumber(redis.call('HGET', KEYS[1], 'deadline'))
local at = now()
if deadline and at < deadline then return 0 end
redis.call('HSET', KEYS[1], 'attempt', ARGV[1], 'task_id', ARGV[2], 'at', text(at), 'deadline', text(at + ARGV[3]))
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
"""

# KEYS: a hash with two times. ARGV: their fields. Returns the hash, and the server's time.
TIMED = """
anew(KEYS[1], ARGV[1], ARGV[2])
return {redis.call('HGETALL', KEYS[1]), text(now())}
"""

# KEYS: lease. ARGV: token, duration. Returns 1 if taken, or held by this token already. One that would last longer than
# any does is from before the server's clock went back.
LEASE = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""

# KEYS: lease. ARGV: token, duration. Returns 1 if still held.
RENEW = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""

# KEYS: lease. ARGV: token. Returns 1 if it was held.
LET_GO = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""

# KEYS: attempts. ARGV: reason, token of the attempt, cooldown, TTL. Returns the failures.
FAILED = """
if ARGV[2] ~= '' and redis.call('HGET', KEYS[1], 'token') == ARGV[2] then
  return tonumber(redis.call('HGET', KEYS[1], 'failures'))
end
local at = now()
redis.call('HSET', KEYS[1], 'reason', ARGV[1], 'token', ARGV[2], 'at', text(at), 'cooldown', text(at + ARGV[3]))
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return redis.call('HINCRBY', KEYS[1], 'failures', 1)
"""

# Goes before scripts that look at reservations. `flight` holds pods by holder, and their sum under the empty name: to
# add them up for each release would cost the square of what is under way. Reservations whose end has passed are
# dropped: their holders died.
FLIGHT = """
local function total(flight)
  local sum = redis.call('HGET', flight, '')
  if sum and redis.call('HLEN', flight) > 1 then return tonumber(sum) end
  redis.call('HDEL', flight, '')
  sum = 0
  for _, pods in ipairs(redis.call('HVALS', flight)) do sum = sum + pods end
  if sum > 0 then redis.call('HSET', flight, '', sum) end
  return sum
end
local function drop(flight, ends, holder)
  local before = total(flight)
  local pods = tonumber(redis.call('HGET', flight, holder))
  redis.call('ZREM', ends, holder)
  if not pods then return end
  redis.call('HDEL', flight, holder)
  redis.call('HSET', flight, '', before - pods)
  if redis.call('HLEN', flight) == 1 then redis.call('DEL', flight) end
end
local function purge(flight, ends)
  for _, holder in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', text(now()))) do drop(flight, ends, holder) end
end
local function reserve(flight, ends, holder, pods, limit, ttl)
  purge(flight, ends)
  not_after(ends, now() + 86400000)
  local mine = tonumber(redis.call('HGET', flight, holder)) or 0
  local others = total(flight) - mine
  if others > 0 and others + pods > limit then return false end
  redis.call('HSET', flight, holder, pods, '', others + pods)
  redis.call('ZADD', ends, text(now() + ttl), holder)
  for _, key in ipairs({flight, ends}) do
    if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, text(ttl)) end
  end
  return true
end
"""

# What an earlier attempt gives back late is a later one's by now.
# KEYS: flight, flight-end, attempt. ARGV: holder, number of the attempt that ends (0: whichever it is).
GIVE_BACK = """
local mine = tonumber(ARGV[2])
if mine > 0 and tonumber(redis.call('GET', KEYS[3]) or '0') > mine then return 0 end
drop(KEYS[1], KEYS[2], ARGV[1])
return 1
"""

# KEYS: flight, flight-end. Returns the pods.
IN_FLIGHT = """
purge(KEYS[1], KEYS[2])
return total(KEYS[1])
"""

# Reservation, number and mark of some releases, in this order, up to the first for which there is no room.
# KEYS: window, flight, flight-end, then of each finding attempt and released. ARGV: deadline, TTL of the mark, TTL of
# the number, initial, minimum, maximum; then of each finding its id, the beginning of its task's id, and
# pods (0: nothing is reserved). Returns for each the number of the attempt; or of a release that stands already
# attempt, task, beginning, deadline, and the time.
ADMIT = """
local size = math.floor(tonumber(redis.call('HGET', KEYS[1], 'size')) or tonumber(ARGV[4]))
size = math.max(tonumber(ARGV[5]), math.min(tonumber(ARGV[6]), size))
local at = now()
local answer = {}
for i = 1, (#ARGV - 6) / 3 do
  local holder, stem, pods = ARGV[3 * i + 4], ARGV[3 * i + 5], tonumber(ARGV[3 * i + 6])
  local counter, mark = KEYS[2 * i + 2], KEYS[2 * i + 3]
  if pods > 0 and not reserve(KEYS[2], KEYS[3], holder, pods, size, tonumber(ARGV[1])) then break end
  anew(mark, 'at', 'deadline')
  local known = redis.call('HMGET', mark, 'attempt', 'task_id', 'at', 'deadline')
  if known[4] and at < tonumber(known[4]) then
    known[5] = text(at)
    answer[i] = known
  else
    local attempt = redis.call('INCR', counter)
    redis.call('EXPIRE', counter, ARGV[3])
    redis.call('HSET', mark, 'attempt', attempt, 'task_id', stem .. attempt, 'at', text(at),
      'deadline', text(at + ARGV[1]))
    redis.call('PEXPIRE', mark, ARGV[2])
    answer[i] = {attempt}
  end
end
return answer
"""

# KEYS: window. ARGV: ok, pods, initial, minimum, maximum, burst, TTL. Returns the new size.
FEEDBACK = """
local low, high = tonumber(ARGV[4]), tonumber(ARGV[5])
local size = tonumber(redis.call('HGET', KEYS[1], 'size')) or tonumber(ARGV[3])
local threshold = tonumber(redis.call('HGET', KEYS[1], 'threshold')) or high
local halved = tonumber(redis.call('HGET', KEYS[1], 'halved')) or 0
local at = now()
if ARGV[1] == '1' then
  local pods = math.min(tonumber(ARGV[2]), size)
  if size < threshold then size = math.min(size + pods, threshold) else size = size + pods / size end
elseif at - halved >= tonumber(ARGV[6]) or at < halved then
  size = size / 2
  threshold = math.max(low, size)
  halved = at
end
size = math.max(low, math.min(high, size))
redis.call('HSET', KEYS[1], 'size', string.format('%.6f', size), 'threshold', string.format('%.6f', threshold),
  'halved', text(halved))
redis.call('PEXPIRE', KEYS[1], ARGV[7])
return string.format('%.6f', size)
"""

# KEYS: share, share-end. ARGV: holder, limit, TTL. Returns 0 if none is free, else 1 and who came earlier.
TAKE_SLOT = """
not_after(KEYS[2], now() + ARGV[3])
for _, holder in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', text(now()))) do
  redis.call('ZREM', KEYS[1], holder)
  redis.call('ZREM', KEYS[2], holder)
end
local mine = redis.call('ZSCORE', KEYS[1], ARGV[1])
if not mine then
  if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then return {'0'} end
  local last = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  mine = text((tonumber(last[2]) or 0) + 1)
  redis.call('ZADD', KEYS[1], mine, ARGV[1])
end
redis.call('ZADD', KEYS[2], text(now() + ARGV[3]), ARGV[1])
for i = 1, 2 do
  if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[i], ARGV[3]) end
end
local answer = {'1'}
for _, holder in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. mine)) do answer[#answer + 1] = holder end
return answer
"""

# KEYS: order. ARGV: TTL, pods. Returns the last number, then the number of each pod; who is new gets the next one.
NUMBER = """
local last = tonumber(redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]) or 0
local answer = {}
for i = 2, #ARGV do
  local number = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]))
  if not number then
    last = last + 1
    number = last
    redis.call('ZADD', KEYS[1], number, ARGV[i])
  end
  answer[i] = number
end
answer[1] = last
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return answer
"""

# KEYS: replacements, in the order in which they are tried. ARGV: UID of the pod that was replaced, TTL. Returns the
# place of the first that is this one's, from 1, or 0.
CLAIM = """
for i, key in ipairs(KEYS) do
  local of = redis.call('GET', key)
  if of == ARGV[1] then return i end
  if not of then
    redis.call('SET', key, ARGV[1], 'EX', ARGV[2])
    return i
  end
end
return 0
"""
