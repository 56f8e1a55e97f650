-- place_take: takes one reserved place, the one that expires first. Needs time.
-- KEYS 1 places (ZSET job id -> end us)
-- ARGV 1 now
-- Reply the job's id | "" if none is reserved
local places = KEYS[1]
local given = ARGV[1]
redis.call('ZREMRANGEBYSCORE', places, '-inf', int(now_us(given)))
local job = redis.call('ZRANGE', places, 0, 0)[1]
if not job then return '' end
redis.call('ZREM', places, job)
return job
