-- finish: the terminal state of a claimed job; the first one stands. Needs
-- time, quota, flows, jobs.
-- KEYS 1-20 pool  21 job
-- ARGV 1 now  2 id  3 token  4 state  5 result TTL ms  6 unused (1|0)  7-10 rpm tpm concurrency burst
--      then field, value pairs for the job hash
-- Reply "ok" | "lost" | "gone <state>"
local P, key, id = pool_keys(), KEYS[21], ARGV[2]
local claim = claim_of(P, id)
local job = redis.call('HMGET', key, 'state', 'token')
if job[1] and terminal(job[1]) then
  if claim and claim.token == ARGV[3] then claim_drop(P, id) end
  return job[2] == ARGV[3] and 'ok' or 'gone ' .. job[1]
end
if not claim or claim.token ~= ARGV[3] then return 'lost' end
if not job[1] then claim_drop(P, id); return 'gone missing' end
local fields = { 'token', ARGV[3] }
for i = 11, #ARGV do fields[#fields + 1] = ARGV[i] end
job_end(P, key, id, now_us(ARGV[1]), ARGV[4], ARGV[5], fields)
if ARGV[6] == '1' then
  local _, _, _, tokens = member_parts(claim.member)
  local q = quota_open(P.quota, ARGV[1], quota_limits(7))
  quota_refund(q, claim.at, tokens)
  quota_close(q)
end
return 'ok'
