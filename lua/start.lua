-- start: claimed jobs begin an attempt. Needs time, rings, publish, jobs. A replay replies as the first
-- time. A job that must not run ends here and returns the quota taken for it; one whose caller is
-- absent waits for the caller. Jobs of batches do not become dead letters: their failures are in
-- their batch's error file. What was booked for a job when it was claimed is moved to the present
-- if it is old by now because the process was busy preparing it. For that, a job that has already
-- started is passed here again.
-- KEYS 1-23 pool (pool_keys)  24... jobs
-- ARGV 1 now  2 maximum tries  3 lease us  4 result TTL ms  5 TTL ms of dead letters  6 maximum of
-- them
--      7-11 rpm tpm concurrency burst otpm (quota_limits)  12 presence grace us  13 us after which bookings are moved
--      then per job (jobs_each): id, token
-- Reply a line per job: "ok <attempt> <started us> <us since it was booked; -1: there is no quota>"
-- | "lost"
--      | "gone <state> <code>" | "ended <state> <code>" if this call ended it | "stale": no quota for it now
--      | "unseen": try again soon, its caller may be connected
local call, fmt = redis.call, string.format
local pool = pool_keys()
local given, most_tries, lease, result_ms, dead_ms, most_dead = unpack(ARGV, 1, 6)
local LIMITS_AT, JOBS_AT = 7, 14 -- where these begin in ARGV
local grace, move_after = ARGV[12], ARGV[13]
local now = now_us(given)
local records, leases, filled = {}, {}, 0
local at, till = fmt('%d', now), fmt('%d', now + lease)
local pool_now = now + (call('HGET', pool.quota, 'off') or 0) -- claims use the pool's time
local young = pool_now - lease / 3
local cancelling = call('EXISTS', pool.cancels) == 1

-- unseen reports whether silent callers may be connected anyway: see overdue.lua.
local function unseen()
  local looked, blind = unpack(call('HMGET', pool.fair, 'looked', 'blind'))
  return math.abs(now - (looked or 0)) > grace / 2 or (blind or 0) - now > 0
end

-- refusal returns why a job must not run: state, code.
local function refusal(id, class, deadline, tries)
  if cancelling and call('HEXISTS', pool.cancels, id) == 1 then return 'cancelled', cancel_code(pool, id) end
  if deadline - now < 0 then return 'expired', 'expired' end
  if class == '1' then
    local present = call('ZSCORE', pool.present, id)
    if present and present - now < 0 and unseen() then return 'unseen' end
    if not present or present - now < 0 then return 'cancelled', 'caller_gone' end
  end
  if tries - most_tries >= 0 then return 'failed', 'attempts_exhausted' end
end

-- unbook gives back the quota that was taken for a job that does not start.
local function unbook(token, rec, flag)
  local _, _, _, tokens = member_parts(claim_member(rec, flag))
  --+ quota
  quota_settle(pool.quota, given, LIMITS_AT, 'unused', claim_at(rec, token, flag), tokens)
end

-- renew moves a job's booking to the present, where it may still be sent; the sum of the minute
-- does not change. It returns the new time of the booking, and -1 if there is no quota; nil if the
-- provider is blocked or there is no capacity.
local function renew(booked_at, tokens, lane)
  --+ quota
  local quota = quota_open(pool.quota, given, quota_limits(LIMITS_AT))
  local gone = quota.slot - math.floor(booked_at / SLOT) >= SLOTS
  quota.other = quota.one and string.sub(lane, 4, 6) ~= quota.one.code
  local fits = quota_paused(quota) == 0
  for _, metric in ipairs(quota.metrics) do
    fits = fits and metric.sum + (gone and quota_cost(quota, metric, tokens) or 0) <= metric.limit
  end
  if fits then
    quota_refund(quota, booked_at, tokens)
    for _, metric in ipairs(quota.metrics) do quota_add(quota, metric, quota_cost(quota, metric, tokens)) end
  end
  quota_close(quota)
  if fits then return quota.now, quota_free(quota) and -1 or 0 end
end

-- booked returns the text of a started claim and the age of its booking, which is renewed if it is
-- old; nil if it cannot be renewed.
local function booked(token, rec, flag)
  local booked_at, member = claim_at(rec, token, flag), claim_member(rec, flag)
  local age = math.max(pool_now - booked_at, 0)
  if age > move_after + 0 then
    local _, _, _, tokens, lane = member_parts(member)
    booked_at, age = renew(booked_at, tokens, lane)
    if not booked_at then return nil end
  end
  return token .. ' ' .. claim_class(rec, token) .. ' ' .. int(booked_at) .. ' 1 ' .. member, int(age)
end

-- aside moves a job whose caller is absent out of the queue: see stay.lua.
local function aside(key, id, token, rec, flag)
  local member = claim_member(rec, flag)
  claim_drop(pool, id)
  call('HSET', key, 'state', 'queued')
  place_reserve(pool, member)
  if pool.probing ~= false then probes_end(pool, now, member) end
  unbook(token, rec, flag)
  publish('lg:job:' .. id, 's')
  return 'gone queued caller_absent'
end

-- refuse ends a job that must not run.
local function refuse(key, id, token, rec, flag, state, code)
  local dead = state == 'failed' and claim_class(rec, token) ~= '3' and
    { ttl_ms = tonumber(dead_ms), most = tonumber(most_dead) }
  job_end(pool, key, id, now, state, result_ms, { 'code', code, 'token', token }, dead)
  unbook(token, rec, flag)
  return 'ended ' .. state .. ' ' .. code
end

local out = jobs_each(pool, JOBS_AT, function(key, id, token, rec)
  local now_is, attempt, tries, deadline, absent = unpack(call('HMGET', key,
    'state', 'attempt', 'tries', 'deadline', 'absent'))
  local flag = claim_flag(rec, token)
  if now_is and terminal(now_is) then
    if flag then claim_drop(pool, id) end
    return 'gone ' .. now_is .. ' ' .. (call('HGET', key, 'code') or '-')
  end
  if not flag then return 'lost' end
  if not now_is then
    claim_drop(pool, id)
    return 'gone missing -'
  end
  if claim_started(rec, flag) then
    local text, age = booked(token, rec, flag)
    if not text then return 'stale' end
    if text ~= rec then call('HSET', pool.claimed, id, text) end
    return 'ok ' .. attempt .. ' ' .. call('HGET', key, 'started') .. ' ' .. age
  end
  local state, code = refusal(id, claim_class(rec, token), deadline, tries)
  if state == 'unseen' then return state end
  if state then return refuse(key, id, token, rec, flag, state, code) end
  if absent then return aside(key, id, token, rec, flag) end
  local text, age = booked(token, rec, flag)
  if not text then return 'stale' end
  attempt = fmt('%d', attempt + 1)
  records[filled + 1], records[filled + 2] = id, text
  if claim_at(rec, token, flag) < young then
    leases[#leases + 1] = till
    leases[#leases + 1] = id
  end
  filled = filled + 2
  call('HSET', key, 'state', 'running', 'attempt', attempt, 'tries', fmt('%d', tries + 1), 'started', at)
  call('PERSIST', key) -- an older version set a TTL
  if pool.probing ~= false then probes_end(pool, now, claim_member(rec, flag)) end
  publish('lg:job:' .. id, 's')
  return 'ok ' .. attempt .. ' ' .. at .. ' ' .. age
end)
if filled > 0 then call('HSET', pool.claimed, unpack(records)) end
if #leases > 0 then -- otherwise they still have most of the lease that acquire gave
  call('ZADD', pool.claims, unpack(leases))
  call('ZADD', pool.slots, unpack(leases))
  slots_keep(pool.slots)
end
return table.concat(out, '\n')
