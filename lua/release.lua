-- release: a claim ends and its job waits again, in its place. Needs time,
-- quota, flows, jobs. A cancelled job ends instead.
-- KEYS 1-20 pool  21 job
-- ARGV 1 now  2 id  3 token  4 park (none|org|flow)  5 park us  6 unused (1|0): give the quota back
--      7 tries: -1 the provider refused the started attempt, +1 it died before start, else 0
--      8 result TTL ms  9-12 rpm tpm concurrency burst
-- Reply "ok" | "lost" | "gone <state>" | "ended cancelled" by this call
local P, key, id = pool_keys(), KEYS[21], ARGV[2]
local claim = claim_of(P, id)
local job = redis.call('HMGET', key, 'state', 'released', 'tries')
if not claim or claim.token ~= ARGV[3] then return job[2] == ARGV[3] and 'ok' or 'lost' end
claim_drop(P, id)
local org, user, _, tokens = member_parts(claim.member)
if ARGV[6] == '1' then
  local q = quota_open(P.quota, ARGV[1], quota_limits(9))
  quota_refund(q, claim.at, tokens)
  quota_close(q)
end
if not job[1] then return 'gone missing' end
if terminal(job[1]) then return 'gone ' .. job[1] end
local now = now_us(ARGV[1])
if redis.call('HEXISTS', P.cancels, id) == 1 then
  job_end(P, key, id, now, 'cancelled', ARGV[8], { 'code', cancel_code(P, id), 'token', ARGV[3] })
  return 'ended cancelled'
end
local tries = tonumber(job[3])
if ARGV[7] == '-1' and claim.started then tries = tries - 1 end
if ARGV[7] == '+1' and not claim.started then tries = tries + 1 end
redis.call('HSET', key, 'state', 'queued', 'released', ARGV[3], 'tries', int(math.max(tries, 0)))
local till = now + tonumber(ARGV[5])
admitted(P, org, user) -- the probe is over; what refused it parks anew
if ARGV[4] == 'org' then park(P, 'o ' .. org, till)
elseif ARGV[4] == 'flow' then park(P, 'u ' .. org .. ' ' .. user, till) end
flow_put(P, claim.class, claim.member)
redis.call('PUBLISH', 'lg:job:' .. id, 's')
return 'ok'
