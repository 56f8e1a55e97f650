-- release: a claim ends and its job waits again, in its place, or outside the queue while its
-- caller is absent, or until the next attempt at a provider that failed it. A cancelled job
-- ends instead. Needs time, quota, rings, flows, jobs.
-- KEYS 1-23 pool  24 job
-- ARGV 1 now  2 id  3 token  4 what to park: a kind of subjects_of, - for nothing  5 park us  6 how the quota was used (quota_settle)
--      7 tries: -1 the provider refused the started attempt, +1 it died before start, else 0
--      8 result TTL ms  9-12 rpm tpm concurrency burst  13 what the attempt was charged
--      14 what was held for it (empty: none was started)
--      15 what waits because the provider failed: alone, the job, which counts the attempt; flow, as
--      ARGV 4 says, and the job counts the attempt; empty, nothing  16 the limit that refused; empty: none
-- Reply "ok" | "lost" | "gone <state>" | "ended cancelled" by this call
local P, key, id = pool_keys(), KEYS[24], ARGV[2]
local rec = redis.call('HGET', P.claimed, id)
local flag = claim_flag(rec, ARGV[3])
local job = redis.call('HMGET', key, 'state', 'released', 'tries', 'spent', 'absent')
if not flag then
  if job[2] == ARGV[3] then return 'ok' end
  charged_late(key, job[1], ARGV[3], ARGV[13], ARGV[14])
  return 'lost'
end
claim_drop(P, id)
local org, user, _, tokens, lane = member_parts(claim_member(rec, flag))
quota_settle(P.quota, ARGV[1], 9, ARGV[6], claim_at(rec, ARGV[3], flag), tokens)
if not job[1] then return 'gone missing' end
if terminal(job[1]) then return 'gone ' .. job[1] end
if claim_started(rec, flag) then redis.call('HSET', key, 'spent', int(charges(job[4], ARGV[13])), 'held', '0') end
local now = now_us(ARGV[1])
if redis.call('HEXISTS', P.cancels, id) == 1 then
  job_end(P, key, id, now, 'cancelled', ARGV[8], { 'code', cancel_code(P, id), 'token', ARGV[3] })
  return 'ended cancelled'
end
local tries = tonumber(job[3])
if ARGV[7] == '-1' and claim_started(rec, flag) then tries = tries - 1 end
if ARGV[7] == '+1' and not claim_started(rec, flag) then tries = tries + 1 end
redis.call('HSET', key, 'state', 'queued', 'released', ARGV[3], 'tries', int(math.max(tries, 0)))
local till = now + tonumber(ARGV[5])
local kinds = { o = 1, u = 2, O = 3, U = 4, K = 5, L = 6, p = 7 }
local subject = subjects_of(org, user, lane)[kinds[ARGV[4]] or 8]
admitted(P, now, org, user, lane, subject) -- the probe is over; what refused it parks anew
if subject then park(P, subject, till) end
if ARGV[16] ~= '' then redis.call('HSET', key, 'limit', ARGV[16]) end
if ARGV[15] ~= '' then redis.call('HINCRBY', key, 'retries', '1') end
if ARGV[15] == 'alone' then
  redis.call('HSET', key, 'again', int(till))
  nap_begin(P, tonumber(claim_class(rec, ARGV[3])), claim_member(rec, flag), till)
elseif job[5] and redis.call('ZSCORE', P.present, id) then -- see stay.lua; start ends one that nobody waits for
  place_reserve(P, claim_member(rec, flag))
else
  flow_put(P, tonumber(claim_class(rec, ARGV[3])), claim_member(rec, flag))
end
redis.call('PUBLISH', 'lg:job:' .. id, 's')
return 'ok'
