-- cancel: ends a waiting job, or tells the worker of a claimed one, which ends
-- it when the claim comes back. Needs time, rings, flows, jobs.
-- KEYS 1-23 pool  24 job
-- ARGV 1 now  2 id  3 why: cancelled (asked), caller_gone, expired  4 org ("" = any)  5 result TTL ms
--      6 channel of the pool's workers
-- Reply "ended <state>" by this call | the state it has ("running" when only told) | "missing"
local P, key, id, why = pool_keys(), KEYS[24], ARGV[2], ARGV[3]
local job = redis.call('HMGET', key, 'state', 'org', 'class', 'stream', 'user', 'lane', 'seq', 'tokens', 'again')
if not job[1] or (ARGV[4] ~= '' and job[2] ~= ARGV[4]) then
  if ARGV[4] == '' then redis.call('ZREM', P.present, id); redis.call('ZREM', P.due, id) end
  return 'missing'
end
if terminal(job[1]) then return job[1] end
local member = member_of(id, job[2], job[5], job[6], job[7], job[8])
if flow_drop(P, tonumber(job[3]), member) or place_return(P, member) then
  if job[9] then redis.call('ZREM', P.shut, nap_entry(job[3], member, job[9])) end
  if redis.call('HEXISTS', P.cancels, id) == 1 then why = cancel_code(P, id) end -- asked of a worker that died
  local state = why == 'expired' and 'expired' or 'cancelled'
  job_end(P, key, id, now_us(ARGV[1]), state, ARGV[5], { 'code', why })
  return 'ended ' .. state
end
if why == 'expired' then redis.call('ZREM', P.due, id); return 'running' end
if why == 'caller_gone' then
  redis.call('ZREM', P.present, id)
  if job[4] ~= '1' then return 'running' end
end
redis.call('HSET', P.cancels, id, why == 'cancelled' and 'c' or 'g')
redis.call('PUBLISH', ARGV[6], id)
return 'running'
