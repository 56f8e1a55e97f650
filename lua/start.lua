-- start: claimed jobs begin an attempt. Needs time, rings, jobs.
-- Replayed, it answers as the first time. A job that must not run ends here,
-- and the quota taken for it goes back. Jobs of batches are no dead letters: what
-- fails of them stands in their batch's error file.
-- KEYS 1-23 pool  24... jobs
-- ARGV 1 now  2 most tries  3 lease us  4 result TTL ms  5 TTL ms of dead letters  6 most of them
--      7-10 rpm tpm concurrency burst  then per job (jobs_each): id, token
-- Reply a line per job: "ok <attempt> <started us>" | "lost" | "gone <state> <code>"
--      | "ended <state> <code>" by this call
local P, now, call, fmt = pool_keys(), now_us(ARGV[1]), redis.call, string.format
local records, leases, n = {}, {}, 0
local at, till, most = fmt('%d', now), fmt('%d', now + ARGV[3]), ARGV[2] + 0
local cancelling = call('EXISTS', P.cancels) == 1

-- refusal says why a job must not run: state, code.
local function refusal(id, class, deadline, tries)
  if cancelling and call('HEXISTS', P.cancels, id) == 1 then return 'cancelled', cancel_code(P, id) end
  if deadline - now < 0 then return 'expired', 'expired' end
  if class == '1' and (call('ZSCORE', P.present, id) or 0) - now < 0 then return 'cancelled', 'caller_gone' end
  if tries - most >= 0 then return 'failed', 'attempts_exhausted' end
end

-- refuse ends a job that must not run.
local function refuse(key, id, token, claim, state, code)
  job_end(P, key, id, now, state, ARGV[4], { 'code', code, 'token', token },
    state == 'failed' and claim.class ~= '3' and { ttl_ms = tonumber(ARGV[5]), most = tonumber(ARGV[6]) })
  local _, _, _, tokens = member_parts(claim.member)
--+ quota
  quota_settle(P.quota, ARGV[1], 7, 'unused', tonumber(claim.at), tokens)
  return 'ended ' .. state .. ' ' .. code
end

local out = jobs_each(P, 11, function(key, id, token, rec)
  local job, claim = call('HMGET', key, 'state', 'attempt', 'tries', 'deadline'), claim_read(rec, token)
  local now_is, attempt, tries = job[1], job[2], job[3]
  if now_is and terminal(now_is) then
    if claim then claim_drop(P, id) end
    return 'gone ' .. now_is .. ' ' .. (call('HGET', key, 'code') or '-')
  end
  if not claim then return 'lost' end
  if not now_is then claim_drop(P, id); return 'gone missing -' end
  if claim.started then return 'ok ' .. attempt .. ' ' .. call('HGET', key, 'started') end
  local state, code = refusal(id, claim.class, job[4], tries)
  if state then return refuse(key, id, token, claim, state, code) end
  attempt = fmt('%d', attempt + 1)
  records[n + 1], records[n + 2] = id, string.sub(rec, 1, claim.flag - 1) .. '1' .. string.sub(rec, claim.flag + 1)
  leases[n + 1], leases[n + 2] = till, id
  n = n + 2
  call('HSET', key, 'state', 'running', 'attempt', attempt, 'tries', fmt('%d', tries + 1), 'started', at)
  if P.probing ~= false then probes_end(P, now, claim.member) end
  call('PUBLISH', 'lg:job:' .. id, 's')
  return 'ok ' .. attempt .. ' ' .. at
end)
if n > 0 then
  call('HSET', P.claimed, unpack(records))
  call('ZADD', P.claims, unpack(leases))
  call('ZADD', P.slots, unpack(leases))
end
return table.concat(out, '\n')
