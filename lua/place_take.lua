-- place_take: takes one kept place, the one that would be lost first. Needs time.
-- KEYS 1 places (ZSET job id -> end us)
-- ARGV 1 now
-- Reply the job's id | "" when none is kept
local now = int(now_us(ARGV[1]))
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local id = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
if not id then return '' end
redis.call('ZREM', KEYS[1], id)
return id
