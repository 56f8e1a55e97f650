-- place_take: takes one kept place, the one that would be lost first. Needs time.
-- KEYS 1 places (ZSET job id -> end us)
-- ARGV 1 now
-- Reply the job's id | "" when none is kept
local places = KEYS[1]
local given = ARGV[1]
redis.call('ZREMRANGEBYSCORE', places, '-inf', int(now_us(given)))
local job = redis.call('ZRANGE', places, 0, 0)[1]
if not job then return '' end
redis.call('ZREM', places, job)
return job
