-- place_keep: reserves a job's place for a repetition of the request. Needs time.
-- KEYS 1 places (ZSET job id -> end us)
-- ARGV 1 now  2 job id  3 us
-- Reply "ok"
local places = KEYS[1]
local given, job, life = unpack(ARGV)
redis.call('ZADD', places, int(now_us(given) + tonumber(life)), job)
local ms = math.ceil(tonumber(life) / 1000)
if redis.call('PTTL', places) < ms then redis.call('PEXPIRE', places, int(ms)) end
return 'ok'
