-- A minimal but correct token bucket: the work of a limiter per subject and call.
-- KEYS[1] hash with level and ts; ARGV: capacity, refill per second, cost.
-- Reply: 1 admitted or 0 refused, and the level.
local now = redis.call('TIME')
local t = now[1] * 1000000 + now[2]
local state = redis.call('HMGET', KEYS[1], 'level', 'ts')
local capacity, refill, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local level, ts = tonumber(state[1]) or capacity, tonumber(state[2]) or t
level = math.min(capacity, level + math.max(t - ts, 0) * refill / 1000000)
local ok = 0
if level >= cost then
  level, ok = level - cost, 1
end
redis.call('HSET', KEYS[1], 'level', string.format('%.0f', level), 'ts', string.format('%.0f', t))
redis.call('PEXPIRE', KEYS[1], 3600000)
return {ok, string.format('%.0f', level)}
