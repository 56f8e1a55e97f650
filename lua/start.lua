-- start: claimed jobs begin an attempt. Needs time, quota, flows, jobs.
-- Replayed, it answers as the first time. A job that must not run ends here,
-- and the quota taken for it goes back. Jobs of batches are no dead letters: what
-- fails of them stands in their batch's error file.
-- KEYS 1-23 pool  24... jobs
-- ARGV 1 now  2 most tries  3 lease us  4 result TTL ms  5 TTL ms of dead letters  6 most of them
--      7-10 rpm tpm concurrency burst  then per job (jobs_each): id, token
-- Reply a line per job: "ok <attempt> <started us>" | "lost" | "gone <state> <code>"
--      | "ended <state> <code>" by this call
local P, now = pool_keys(), now_us(ARGV[1])
local records, leases, till = {}, {}, int(now + tonumber(ARGV[3]))

-- refusal says why a job must not run: state, code.
local function refusal(id, claim, deadline, tries)
  if P.cancelling == nil then P.cancelling = redis.call('EXISTS', P.cancels) == 1 end
  if P.cancelling and redis.call('HEXISTS', P.cancels, id) == 1 then return 'cancelled', cancel_code(P, id) end
  if tonumber(deadline) < now then return 'expired', 'expired' end
  if claim.class == 1 and tonumber(redis.call('ZSCORE', P.present, id) or 0) < now then return 'cancelled', 'caller_gone' end
  if tonumber(tries) >= tonumber(ARGV[2]) then return 'failed', 'attempts_exhausted' end
end

local out = jobs_each(P, 11, function(key, id, claim, args)
  local token = args[2]
  local job = redis.call('HMGET', key, 'state', 'attempt', 'tries', 'deadline', 'code', 'started')
  if job[1] and terminal(job[1]) then
    if claim and claim.token == token then claim_drop(P, id) end
    return 'gone ' .. job[1] .. ' ' .. (job[5] or '-')
  end
  if not claim or claim.token ~= token then return 'lost' end
  if not job[1] then claim_drop(P, id); return 'gone missing -' end
  if claim.started then return 'ok ' .. job[2] .. ' ' .. job[6] end
  local org, user, _, tokens, lane = member_parts(claim.member)
  local state, code = refusal(id, claim, job[4], job[3])
  if state then
    job_end(P, key, id, now, state, ARGV[4], { 'code', code, 'token', token },
      state == 'failed' and claim.class ~= 3 and { ttl_ms = tonumber(ARGV[5]), most = tonumber(ARGV[6]) })
    quota_settle(P.quota, ARGV[1], 7, 'unused', claim.at, tokens)
    P.sizes = nil
    return 'ended ' .. state .. ' ' .. code
  end
  local attempt = tonumber(job[2]) + 1
  claim.started = true
  records[#records + 1], records[#records + 2] = id, claim_text(claim)
  leases[#leases + 1], leases[#leases + 2] = till, id
  redis.call('HSET', key, 'state', 'running', 'attempt', attempt, 'tries', tonumber(job[3]) + 1,
    'started', int(now), 'token', token)
  admitted(P, now, org, user, lane)
  redis.call('PUBLISH', 'lg:job:' .. id, 's')
  return 'ok ' .. attempt .. ' ' .. int(now)
end)
if #records > 0 then
  redis.call('HSET', P.claimed, unpack(records))
  redis.call('ZADD', P.claims, unpack(leases))
  redis.call('ZADD', P.slots, unpack(leases))
end
return table.concat(out, '\n')
