-- block: nothing is granted for a while; the longest block wins. Needs time.
-- KEYS 1 quota
-- ARGV 1 now  2 duration us
-- Reply blocked until, us
local until_us = math.max(now_us(ARGV[1]) + tonumber(ARGV[2]), tonumber(redis.call('HGET', KEYS[1], 'blk') or 0))
redis.call('HSET', KEYS[1], 'blk', int(until_us))
local left = math.ceil((until_us - now_us(ARGV[1])) / 1000) + 120000
if redis.call('PTTL', KEYS[1]) < left then redis.call('PEXPIRE', KEYS[1], int(left)) end
return int(until_us)
