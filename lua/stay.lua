-- stay: the caller of a job is back, or has left and will be. Needs time, rings, flows, jobs
-- for terminal.
-- KEYS 1-23 pool  24 job
-- ARGV 1 now  2 id  3 org  4 us for which its caller counts as present
--      5 us for which it may go on waiting  6 the pool's longest wait us
-- Reply the job's state | "missing". Never shortens presence or waiting.
local P, key, id, now = pool_keys(), KEYS[24], ARGV[2], now_us(ARGV[1])
local job = redis.call('HMGET', key, 'state', 'org', 'class', 'created', 'deadline')
if not job[1] or job[2] ~= ARGV[3] then return 'missing' end
if terminal(job[1]) then return job[1] end
local till = now + tonumber(ARGV[4])
if job[3] == '1' and tonumber(redis.call('ZSCORE', P.present, id) or 0) < till then
  redis.call('ZADD', P.present, int(till), id)
end
local deadline = math.min(now + tonumber(ARGV[5]), tonumber(job[4]) + tonumber(ARGV[6]))
if deadline > tonumber(job[5]) then
  redis.call('HSET', key, 'deadline', int(deadline))
  redis.call('ZADD', P.due, int(deadline), id)
  redis.call('PERSIST', key) -- an older version put it with a TTL
end
return job[1]
