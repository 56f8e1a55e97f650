-- start: claimed jobs begin an attempt. Needs time, rings, jobs.
-- Replayed, it answers as the first time. A job that must not run ends here,
-- and the quota taken for it goes back; one whose caller is absent waits for it. Jobs of batches are no dead letters: what
-- fails of them stands in their batch's error file.
-- What was booked for a job when it was claimed moves to the present when it is old by now:
-- the process was busy with making it ready. A job that has started comes here again for that.
-- KEYS 1-23 pool  24... jobs
-- ARGV 1 now  2 most tries  3 lease us  4 result TTL ms  5 TTL ms of dead letters  6 most of them
--      7-10 rpm tpm concurrency burst  11 presence grace us  12 us after which what was booked moves
--      then per job (jobs_each): id, token, what is charged if the attempt dies
-- Reply a line per job: "ok <attempt> <started us> <us since it was booked; -1: there is no quota>" | "lost"
--      | "gone <state> <code>" | "ended <state> <code>" by this call | "stale": there is no quota for it now
--      | "unseen": try again soon, its caller may be connected
local P, now, call, fmt = pool_keys(), now_us(ARGV[1]), redis.call, string.format
local records, leases, n = {}, {}, 0
local at, till, most = fmt('%d', now), fmt('%d', now + ARGV[3]), ARGV[2] + 0
local pool_now = now + (call('HGET', P.quota, 'off') or 0) -- claims tell the pool's time
local young = pool_now - ARGV[3] / 3
local cancelling = call('EXISTS', P.cancels) == 1

-- unseen reports whether callers who are silent may be connected all the same: see overdue.lua.
local function unseen()
  local fair = call('HMGET', P.fair, 'looked', 'blind')
  return math.abs(now - (fair[1] or 0)) > ARGV[11] / 2 or (fair[2] or 0) - now > 0
end

-- refusal says why a job must not run: state, code.
local function refusal(id, class, deadline, tries)
  if cancelling and call('HEXISTS', P.cancels, id) == 1 then return 'cancelled', cancel_code(P, id) end
  if deadline - now < 0 then return 'expired', 'expired' end
  if class == '1' then
    local till = call('ZSCORE', P.present, id)
    if till and till - now < 0 and unseen() then return 'unseen' end
    if not till or till - now < 0 then return 'cancelled', 'caller_gone' end
  end
  if tries - most >= 0 then return 'failed', 'attempts_exhausted' end
end

-- unbook gives back the quota that was taken for a job that does not start.
local function unbook(token, rec, flag)
  local _, _, _, tokens = member_parts(claim_member(rec, flag))
--+ quota
  quota_settle(P.quota, ARGV[1], 7, 'unused', claim_at(rec, token, flag), tokens)
end

-- renew moves what was booked for a job to the present, where it may still be sent: the sum of
-- the minute stays as it is. It returns when it is booked now, and -1 where there is no
-- quota; nil when the provider is closed, or there is no room.
local function renew(at, tokens)
--+ quota
  local q = quota_open(P.quota, ARGV[1], quota_limits(7))
  local gone, fits = q.slot - math.floor(at / SLOT) >= SLOTS, q.now >= q.blk
  local function cost(m) return m.name == 'r' and 1 or math.min(tokens, m.limit) end
  for _, m in ipairs(q.metrics) do fits = fits and m.sum + (gone and cost(m) or 0) <= m.limit end
  if fits then
    quota_refund(q, at, tokens)
    for _, m in ipairs(q.metrics) do
      m.sum, m.added = m.sum + cost(m), m.added + cost(m)
      if m.pace then quota_book(m, -cost(m)) end
    end
  end
  quota_close(q)
  if fits then return q.now, quota_free(q) and -1 or 0 end
end

-- booked returns the text of a started claim and the age of what was booked for it, which is
-- renewed when it is old; nil when it cannot be.
local function booked(token, rec, flag)
  local at, member = claim_at(rec, token, flag), claim_member(rec, flag)
  local age = math.max(pool_now - at, 0)
  if age > ARGV[12] + 0 then
    local _, _, _, tokens = member_parts(member)
    at, age = renew(at, tokens)
    if not at then return nil end
  end
  return token .. ' ' .. claim_class(rec, token) .. ' ' .. int(at) .. ' 1 ' .. member, int(age)
end

-- aside puts a job whose caller is absent outside the queue: see stay.lua.
local function aside(key, id, token, rec, flag)
  claim_drop(P, id)
  call('HSET', key, 'state', 'queued')
  place_reserve(P, claim_member(rec, flag))
  if P.probing ~= false then probes_end(P, now, claim_member(rec, flag)) end
  unbook(token, rec, flag)
  call('PUBLISH', 'lg:job:' .. id, 's')
  return 'gone queued caller_absent'
end

-- refuse ends a job that must not run.
local function refuse(key, id, token, rec, flag, state, code)
  job_end(P, key, id, now, state, ARGV[4], { 'code', code, 'token', token },
    state == 'failed' and claim_class(rec, token) ~= '3' and { ttl_ms = tonumber(ARGV[5]), most = tonumber(ARGV[6]) })
  unbook(token, rec, flag)
  return 'ended ' .. state .. ' ' .. code
end

local out = jobs_each(P, 13, function(key, id, token, rec, from)
  local job, flag = call('HMGET', key, 'state', 'attempt', 'tries', 'deadline', 'spent', 'held', 'absent'), claim_flag(rec, token)
  local now_is, attempt, tries = job[1], job[2], job[3]
  if now_is and terminal(now_is) then
    if flag then claim_drop(P, id) end
    return 'gone ' .. now_is .. ' ' .. (call('HGET', key, 'code') or '-')
  end
  if not flag then return 'lost' end
  if not now_is then claim_drop(P, id); return 'gone missing -' end
  if claim_started(rec, flag) then
    local text, age = booked(token, rec, flag)
    if not text then return 'stale' end
    if text ~= rec then call('HSET', P.claimed, id, text) end
    return 'ok ' .. attempt .. ' ' .. call('HGET', key, 'started') .. ' ' .. age
  end
  local state, code = refusal(id, claim_class(rec, token), job[4], tries)
  if state == 'unseen' then return state end
  if state then return refuse(key, id, token, rec, flag, state, code) end
  if job[7] then return aside(key, id, token, rec, flag) end
  local text, age = booked(token, rec, flag)
  if not text then return 'stale' end
  attempt = fmt('%d', attempt + 1)
  records[n + 1], records[n + 2] = id, text
  if claim_at(rec, token, flag) < young then leases[#leases + 1] = till; leases[#leases + 1] = id end
  n = n + 2
  call('HSET', key, 'state', 'running', 'attempt', attempt, 'tries', fmt('%d', tries + 1), 'started', at,
    'spent', int(charges(job[5], job[6])), 'held', ARGV[from + 2])
  call('PERSIST', key) -- an older version put it with a TTL
  if P.probing ~= false then probes_end(P, now, claim_member(rec, flag)) end
  call('PUBLISH', 'lg:job:' .. id, 's')
  return 'ok ' .. attempt .. ' ' .. at .. ' ' .. age
end)
if n > 0 then
  call('HSET', P.claimed, unpack(records))
end
if #leases > 0 then -- the others still have most of the lease that acquire gave
  call('ZADD', P.claims, unpack(leases))
  call('ZADD', P.slots, unpack(leases))
  slots_keep(P.slots)
end
return table.concat(out, '\n')
