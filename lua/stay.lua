-- stay: the caller of a job has left and its place is reserved, or the caller is back. Needs time,
-- rings, flows, jobs. A job whose caller is absent waits outside the queue and is not started; when
-- its caller is back it gets its old turn, and its wait is counted again from then on: the refusal of its
-- caller took it back, which the time 0 in the field wait says. Only interactive jobs need a caller.
-- KEYS 1-23 pool (pool_keys)  24 job
-- ARGV 1 now  2 id  3 org  4 leave | back  5 us for which its caller counts as present
--      6 us for which it may keep waiting  7 the pool's longest wait us
-- Reply the job's state | "missing". Never shortens presence or waiting, nor
-- extends the waiting of a job that is served by its deadline. A running stream is not
-- marked, because its caller stays for the answer.
local pool, key = pool_keys(), KEYS[24]
local given, id, of_org, what, present_us, more_us, longest_us = unpack(ARGV)
local now = now_us(given)
redis.call('ZREM', pool.present, '') -- allowed when memory is full, and so is every write after it
local state, org, class, created, deadline, stream, absent, user, lane, seq, tokens, wait =
  unpack(redis.call('HMGET', key,
    'state', 'org', 'class', 'created', 'deadline', 'stream', 'absent', 'user', 'lane', 'seq', 'tokens', 'wait'))
if not state or org ~= of_org then return 'missing' end
if terminal(state) then return state end
class = tonumber(class)
local member = member_of(id, org, user, lane, seq, tokens)
local cause = wait and wait:match(' .*')
if what == 'back' and absent then
  redis.call('HDEL', key, 'absent')
  if cause and state == 'queued' then redis.call('HSET', key, 'wait', int(now) .. cause) end
  if place_return(pool, member) then flow_put(pool, class, member) end
elseif what == 'leave' and class == 1 and not (state == 'running' and stream == '1') then
  redis.call('HSET', key, 'absent', '1')
  if cause then redis.call('HSET', key, 'wait', '0' .. cause) end
  if flow_drop(pool, class, member) then place_reserve(pool, member) end
end
local till = now + tonumber(present_us)
if class == 1 and tonumber(redis.call('ZSCORE', pool.present, id) or 0) < till then
  redis.call('ZADD', pool.present, int(till), id)
end
local longer = math.min(now + tonumber(more_us), tonumber(created) + tonumber(longest_us))
if longer > tonumber(deadline) and not string.find(seq, '^[1-8]') then
  redis.call('HSET', key, 'deadline', int(longer))
  redis.call('ZADD', pool.due, int(longer), id)
  redis.call('PERSIST', key) -- an older version set a TTL
end
return state
