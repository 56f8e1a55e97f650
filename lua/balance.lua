-- balance: compares the tasks of a pool's asynq queue with the pool's jobs, and removes tasks without a
-- job. Needs time, rings.
-- KEYS 1-23 pool (pool_keys)  24 the last deviations (HASH)  25 pending  26 active  27 lease
--      28 scheduled  29 retry  30 archived, of asynq
-- ARGV 1 now  2 us between two comparisons  3 prefix of asynq's tasks  4 now in seconds  5 now in ns
--      6 archived tasks that asynq keeps
-- Both change all the time, so a deviation counts once four comparisons have seen it.
-- Reply "<waiting tasks to add> <resting tasks to add> <1: compare dead letters and archived tasks>
-- <1: they differ>"; empty: compared a moment ago
local call = redis.call
local pool, state_key = pool_keys(), KEYS[24]
local pending, active, lease, scheduled, retry, archived = unpack(KEYS, 25, 30)
local given, every, prefix, now_s, now_ns, most_archived = unpack(ARGV)
local MOST = 1000 -- tasks that one comparison removes or adds
local SKEW = 30 -- seconds by which clocks of workers may differ; asynq allows as much
local now = now_us(given)

local state = call('HMGET', state_key, 'at', 'waiting', 'resting', 'running', 'dead')
if state[1] and math.abs(now - state[1]) < every + 0 then return '' end
call('ZREM', lease, '') -- allowed when memory is full, and so is every write after it

local waiting = pickable(pool, 1) + pickable(pool, 2) + pickable(pool, 3)
local running = call('ZCARD', pool.claims)
local resting = (call('HGET', pool.size, 'jobs') or 0) - running - waiting
local now_differ = {
  call('LLEN', pending) - waiting,
  call('ZCARD', scheduled) + call('ZCARD', retry) - resting,
  call('LLEN', active) - running,
  call('ZCARD', archived) - math.min(call('ZCARD', pool.dead), most_archived + 0),
}
local differ, set, some = {}, { 'at', int(now) }, false
for k, name in ipairs({ 'waiting', 'resting', 'running', 'dead' }) do
  local x, u, v, w = now_differ[k], string.match(state[1 + k] or '0 0 0', '(%S+) (%S+) (%S+)')
  local least, most = math.min(x, u, v, w), math.max(x, u, v, w)
  differ[k] = least > 0 and least or math.min(most, 0)
  set[#set + 1], set[#set + 2] = name, int(x) .. ' ' .. u .. ' ' .. v
  some = some or x ~= 0
end

-- Tasks whose lease has expired become pending once the claims of their jobs have ended, as asynq makes
-- them a minute later. What runs is decided by llmguard's claims.
local function recall(ids)
  for _, id in ipairs(ids) do
    call('ZREM', lease, id)
    if call('LREM', active, 0, id) > 0 and call('HEXISTS', prefix .. id, 'msg') == 1 then
      call('RPUSH', pending, id)
      call('HSET', prefix .. id, 'state', 'pending', 'pending_since', now_ns)
    end
  end
end
recall(call('ZRANGEBYSCORE', lease, '-inf', now_s - SKEW, 'LIMIT', 0, MOST))
if differ[3] > 0 then
  recall(call('ZRANGEBYSCORE', lease, '-inf', now_s, 'LIMIT', 0, math.min(differ[3], MOST)))
end

-- Newest tasks first. The task of a dead letter that somebody runs with asynq's tools stays.
local skipped = {}
for _ = 1, math.min(differ[1], MOST) do
  local id = call('LPOP', pending)
  if not id then break end
  if call('ZSCORE', pool.dead, id) then
    skipped[#skipped + 1] = id
  else
    call('DEL', prefix .. id)
  end
end
if #skipped > 0 then call('RPUSH', pending, unpack(skipped)) end
for _ = 1, math.min(differ[2], MOST) do
  local from = scheduled
  local id = call('ZREVRANGE', from, 0, 0)[1]
  if not id then
    from = retry
    id = call('ZREVRANGE', from, 0, 0)[1]
  end
  if not id then break end
  call('ZREM', from, id)
  call('DEL', prefix .. id)
end

call('HSET', state_key, unpack(set))
call('PEXPIRE', state_key, 60000)
return int(math.min(math.max(-differ[1], 0), MOST)) .. ' ' .. int(math.min(math.max(-differ[2], 0), MOST))
  .. (differ[4] ~= 0 and ' 1' or ' 0') .. (some and ' 1' or ' 0')
