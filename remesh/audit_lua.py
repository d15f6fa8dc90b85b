"""The audit trail's Lua script. Used by `remesh.audit` alone.

KEYS: trail, its head, then per record its id's key and its indexes. ARGV: seconds, then per record its JSON, the
SHA-256 of that, and the number of its indexes. The hash is the one of `remesh.chain.link_hash`: made here, where the
record before is known for certain, so that writers at the same time can neither fork the chain nor wait for each other.
Lua writes whole numbers without an exponent up to 10^14.
"""

APPEND = """
local head = redis.call('HMGET', KEYS[2], 'n', 'h', 'p')
local number, hash, before = tonumber(head[1]) or 0, head[2] or string.rep('0', 40), head[3] or '0-0'
local positions = {}
local grown = false
local key = 3
for i = 2, #ARGV, 3 do
  local last = key + ARGV[i + 2]
  local position = redis.call('GET', KEYS[key])
  if not position then
    number = number + 1
    hash = redis.sha1hex(hash .. ' ' .. number .. ' ' .. before .. ' ' .. ARGV[i + 1])
    position = redis.call('XADD', KEYS[1], '*', 'r', ARGV[i], 'n', number, 'h', hash)
    before = position
    grown = true
    local ms = string.match(position, '^%d+')
    for index = key + 1, last do redis.call('ZADD', KEYS[index], ms, position) end
    redis.call('SET', KEYS[key], position, 'EX', ARGV[1])
  end
  positions[#positions + 1] = position
  key = last + 1
end
if grown then redis.call('HSET', KEYS[2], 'n', number, 'h', hash, 'p', before) end
return positions
"""
