-- release: a claim ends and its job waits again: in its place, or outside the queue while its
-- caller is absent, or until the next attempt at a provider that failed it. A cancelled job ends
-- instead.
-- Needs time, quota, rings, flows, publish, jobs.
-- KEYS 1-23 pool (pool_keys)  24 job
-- ARGV 1 now  2 id  3 token  4 what to park: a kind of subjects_of, - for nothing  5 park us
--      6 how the quota was used (quota_settle)
--      7 tries: -1 the provider refused the started attempt, +1 it died before start, else 0
--      8 result TTL ms  9-13 rpm tpm concurrency burst otpm (quota_limits)
--      14 what waits because the provider failed: alone: the job, which counts the attempt; flow: as
--      in ARGV 4, and the job counts the attempt; empty: nothing. apart: the job, because a brake
--      refused it  15 the cause of the wait; empty: none  16 the time and cause as which the wait
--      is counted; empty: it is not, or was counted before
-- Reply "ok" | "lost" | "gone <state>" | "ended cancelled" if this call ended it
local pool, key = pool_keys(), KEYS[24]
local given, id, token, kind, park_us, used, try, result_ms = unpack(ARGV, 1, 8)
local LIMITS_AT = 9 -- start of the limits in ARGV
local failed, cause, wait = unpack(ARGV, 14, 16)
local rec = redis.call('HGET', pool.claimed, id)
local flag = claim_flag(rec, token)
local state, released, tries, absent = unpack(redis.call('HMGET', key, 'state', 'released', 'tries', 'absent'))
if not flag then
  return released == token and 'ok' or 'lost'
end
local class, member, started = tonumber(claim_class(rec, token)), claim_member(rec, flag), claim_started(rec, flag)
claim_drop(pool, id)
local org, user, _, tokens, lane = member_parts(member)
quota_settle(pool.quota, given, LIMITS_AT, used, claim_at(rec, token, flag), tokens)
if not state then return 'gone missing' end
if terminal(state) then return 'gone ' .. state end
local now = now_us(given)
if redis.call('HEXISTS', pool.cancels, id) == 1 then
  job_end(pool, key, id, now, 'cancelled', result_ms, { 'code', cancel_code(pool, id), 'token', token })
  return 'ended cancelled'
end
tries = tonumber(tries)
if try == '-1' and started then tries = tries - 1 end
if try == '+1' and not started then tries = tries + 1 end
redis.call('HSET', key, 'state', 'queued', 'released', token, 'tries', int(math.max(tries, 0)))
local till = now + tonumber(park_us)
local kinds = { o = 1, u = 2, O = 3, U = 4, K = 5, L = 6, p = 7 }
local subject = subjects_of(org, user, lane)[kinds[kind] or 8]
if not started and turn_kept(pool, key, now, subject) then turn_return(pool, class, org, user, token) end
admitted(pool, now, org, user, lane, subject) -- the probe is over; its subject is parked again
if subject then
  park(pool, subject, till)
  if cause ~= '' then redis.call('HSET', pool.fair, 'by ' .. subject, cause) end
end
if cause ~= '' then redis.call('HSET', key, 'limit', cause) end
if wait ~= '' then redis.call('HSET', key, 'wait', wait) end
if failed ~= '' and failed ~= 'apart' then redis.call('HINCRBY', key, 'retries', '1') end
if failed == 'alone' or failed == 'apart' then
  redis.call('HSET', key, 'again', int(till))
  if failed == 'apart' then redis.call('HSET', key, 'braked', int(till)) end -- for Queue.Unpark
  nap_begin(pool, class, member, till)
elseif absent and redis.call('ZSCORE', pool.present, id) then -- see stay.lua; start ends a job without a caller
  place_reserve(pool, member)
else
  flow_put(pool, class, member)
end
publish('lg:job:' .. id, 's')
return 'ok'
