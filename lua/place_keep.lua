-- place_keep: keeps a place for whoever repeats the request. Needs time.
-- KEYS 1 places (ZSET job id -> end us)
-- ARGV 1 now  2 job id  3 us
-- Reply "ok"
redis.call('ZADD', KEYS[1], int(now_us(ARGV[1]) + tonumber(ARGV[3])), ARGV[2])
local ms = math.ceil(tonumber(ARGV[3]) / 1000)
if redis.call('PTTL', KEYS[1]) < ms then redis.call('PEXPIRE', KEYS[1], int(ms)) end
return 'ok'
