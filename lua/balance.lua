-- balance: compares the tasks of a pool's asynq queue with the pool's jobs, and removes tasks without a
-- job. Needs time, rings.
-- KEYS 1-23 pool (pool_keys)  24 state of the comparison (HASH)  25 pending  26 active  27 lease
--      28 scheduled  29 retry  30 archived, of asynq
-- ARGV 1 now  2 us between two comparisons  3 prefix of asynq's tasks  4 now in seconds  5 now in ns
-- Both change all the time, so a deviation counts once two comparisons have seen it. Tasks whose lease
-- has expired become pending, as asynq makes them a minute later: llmguard's claims decide what runs.
-- Reply "<tasks to add> <1: compare dead letters and archived tasks>"; empty: compared a moment ago
local call = redis.call
local pool, state_key = pool_keys(), KEYS[24]
local pending, active, lease, scheduled, retry, archived = unpack(KEYS, 25, 30)
local given, every, prefix, now_s, now_ns = unpack(ARGV)
local MOST = 1000 -- tasks that one comparison removes or adds
local now = now_us(given)

local at, last, last_dead = unpack(call('HMGET', state_key, 'at', 'waiting', 'dead'))
if at and math.abs(now - at) < every + 0 then return '' end

call('ZREM', lease, '') -- allowed when memory is full, and so is every write after it
for _, id in ipairs(call('ZRANGEBYSCORE', lease, '-inf', now_s, 'LIMIT', 0, MOST)) do
  call('ZREM', lease, id)
  if call('LREM', active, 0, id) > 0 then
    call('RPUSH', pending, id)
    call('HSET', prefix .. id, 'state', 'pending', 'pending_since', now_ns)
  end
end

-- both returns what two deviations have in common.
local function both(a, b)
  if not a then return 0 end
  a = tonumber(a)
  if a > 0 and b > 0 then return math.min(a, b) end
  if a < 0 and b < 0 then return math.max(a, b) end
  return 0
end
local open, running = call('HGET', pool.size, 'jobs') or 0, call('HLEN', pool.claimed)
local waiting = call('LLEN', pending) + call('ZCARD', scheduled) + call('ZCARD', retry) - (open - running)
local dead = call('ZCARD', archived) - call('ZCARD', pool.dead)
local excess, letters = both(last, waiting), both(last_dead, dead)

-- Newest tasks first. The task of a dead letter that somebody runs with asynq's tools stays.
local removed, skipped = 0, {}
while removed < math.min(excess, MOST) do
  local id = call('LPOP', pending)
  if not id then
    id = call('ZRANGE', retry, 0, 0)[1]
    if not id then break end
    call('ZREM', retry, id)
  end
  if call('ZSCORE', pool.dead, id) then
    skipped[#skipped + 1] = id
    excess = excess - 1
  else
    call('DEL', prefix .. id)
    removed = removed + 1
  end
end
if #skipped > 0 then call('RPUSH', pending, unpack(skipped)) end

call('HSET', state_key, 'at', int(now), 'waiting', int(waiting - removed), 'dead', int(dead))
call('PEXPIRE', state_key, 60000)
return int(math.min(math.max(-excess, 0), MOST)) .. ' ' .. (letters ~= 0 and '1' or '0')
