-- start: the claimed job begins an attempt. Needs time, quota, flows, jobs.
-- Replayed, it answers as the first time. A job that must not run ends here,
-- and the quota taken for it goes back.
-- KEYS 1-20 pool  21 job
-- ARGV 1 now  2 id  3 token  4 most tries  5 lease us  6 result TTL ms  7-10 rpm tpm concurrency burst
-- Reply "ok <attempt> <started us>" | "lost" | "gone <state> <code>" | "ended <state> <code>" by this call
local P, key, id = pool_keys(), KEYS[21], ARGV[2]
local claim = claim_of(P, id)
local job = redis.call('HMGET', key, 'state', 'attempt', 'tries', 'deadline', 'code', 'token', 'started')
if job[1] and terminal(job[1]) then
  if claim and claim.token == ARGV[3] then claim_drop(P, id) end
  return 'gone ' .. job[1] .. ' ' .. (job[5] or '-')
end
if not claim or claim.token ~= ARGV[3] then return 'lost' end
if not job[1] then claim_drop(P, id); return 'gone missing -' end
if claim.started then return 'ok ' .. job[2] .. ' ' .. job[7] end

local now = now_us(ARGV[1])
local state, code
if redis.call('HEXISTS', P.cancels, id) == 1 then state, code = 'cancelled', cancel_code(P, id)
elseif tonumber(job[4]) < now then state, code = 'expired', 'expired'
elseif claim.class == 1 and tonumber(redis.call('ZSCORE', P.present, id) or 0) < now then state, code = 'cancelled', 'caller_gone'
elseif tonumber(job[3]) >= tonumber(ARGV[4]) then state, code = 'failed', 'attempts_exhausted'
end
local org, user, _, tokens = member_parts(claim.member)
if state then
  job_end(P, key, id, now, state, ARGV[6], { 'code', code, 'token', ARGV[3] })
  local q = quota_open(P.quota, ARGV[1], quota_limits(7))
  quota_refund(q, claim.at, tokens)
  quota_close(q)
  return 'ended ' .. state .. ' ' .. code
end

local attempt = tonumber(job[2]) + 1
claim.started = true
redis.call('HSET', P.claimed, id, claim_text(claim))
local till = int(now + tonumber(ARGV[5]))
redis.call('ZADD', P.claims, till, id)
redis.call('ZADD', P.slots, till, id)
redis.call('HSET', key, 'state', 'running', 'attempt', attempt, 'tries', tonumber(job[3]) + 1,
  'started', int(now), 'token', ARGV[3])
admitted(P, org, user)
redis.call('PUBLISH', 'lg:job:' .. id, 's')
return 'ok ' .. attempt .. ' ' .. int(now)
