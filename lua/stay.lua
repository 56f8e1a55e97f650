-- stay: the caller of a job has left and its place is reserved, or it is back. Needs time, rings,
-- flows, jobs. A job whose caller is absent waits outside the queue, where nothing starts it;
-- when its caller is back it has its old turn. Only interactive jobs need a caller.
-- KEYS 1-23 pool  24 job
-- ARGV 1 now  2 id  3 org  4 leave | back  5 us for which its caller counts as present
--      6 us for which it may go on waiting  7 the pool's longest wait us
-- Reply the job's state | "missing". Never shortens presence or waiting. A stream that runs is
-- not marked: its caller stays for the answer.
local P, key, id, now = pool_keys(), KEYS[24], ARGV[2], now_us(ARGV[1])
redis.call('ZREM', P.present, '') -- full memory allows this, and then every write after it
local job = redis.call('HMGET', key, 'state', 'org', 'class', 'created', 'deadline', 'stream', 'absent', 'user', 'lane', 'seq', 'tokens')
if not job[1] or job[2] ~= ARGV[3] then return 'missing' end
if terminal(job[1]) then return job[1] end
local class, member = tonumber(job[3]), member_of(id, job[2], job[8], job[9], job[10], job[11])
if ARGV[4] == 'back' and job[7] then
  redis.call('HDEL', key, 'absent')
  if place_return(P, member) then flow_put(P, class, member) end
elseif ARGV[4] == 'leave' and class == 1 and not (job[1] == 'running' and job[6] == '1') then
  redis.call('HSET', key, 'absent', '1')
  if flow_drop(P, class, member) then place_reserve(P, member) end
end
local till = now + tonumber(ARGV[5])
if class == 1 and tonumber(redis.call('ZSCORE', P.present, id) or 0) < till then
  redis.call('ZADD', P.present, int(till), id)
end
local deadline = math.min(now + tonumber(ARGV[6]), tonumber(job[4]) + tonumber(ARGV[7]))
if deadline > tonumber(job[5]) then
  redis.call('HSET', key, 'deadline', int(deadline))
  redis.call('ZADD', P.due, int(deadline), id)
  redis.call('PERSIST', key) -- an older version put it with a TTL
end
return job[1]
