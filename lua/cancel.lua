-- cancel: ends a waiting job, or notifies the worker of a claimed one, which ends it when the claim
-- is returned. Needs time, rings, flows, publish, jobs.
-- KEYS 1-23 pool (pool_keys)  24 job
-- ARGV 1 now  2 id  3 why: cancelled (by request), caller_gone, expired  4 org ("" = any)  5 result
-- TTL ms
--      6 channel of the pool's workers
-- Reply "ended <state>" if this call ended it | its state ("running" if its worker was notified) |
-- "missing"
local pool, key = pool_keys(), KEYS[24]
local given, id, why, of_org, ttl_ms, channel = unpack(ARGV)
local state, org, class, stream, user, lane, seq, tokens, again = unpack(redis.call('HMGET', key,
  'state', 'org', 'class', 'stream', 'user', 'lane', 'seq', 'tokens', 'again'))
if not state or (of_org ~= '' and org ~= of_org) then
  if of_org == '' then
    redis.call('ZREM', pool.present, id)
    redis.call('ZREM', pool.due, id)
  end
  return 'missing'
end
if terminal(state) then return state end
local member = member_of(id, org, user, lane, seq, tokens)
if flow_drop(pool, tonumber(class), member) or place_return(pool, member) then
  if again then redis.call('ZREM', pool.shut, nap_entry(class, member, again)) end
  if redis.call('HEXISTS', pool.cancels, id) == 1 then why = cancel_code(pool, id) end -- for a worker that died
  local terminal_state = why == 'expired' and 'expired' or 'cancelled'
  job_end(pool, key, id, now_us(given), terminal_state, ttl_ms, { 'code', why })
  return 'ended ' .. terminal_state
end
if why == 'expired' then
  redis.call('ZREM', pool.due, id)
  return 'running'
end
if why == 'caller_gone' then
  redis.call('ZREM', pool.present, id)
  if stream ~= '1' then return 'running' end
end
redis.call('HSET', pool.cancels, id, why == 'cancelled' and 'c' or 'g')
publish(channel, id)
return 'running'
