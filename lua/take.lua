-- take: a grant of provider quota for one live call. Needs time; quota.lua is included below.
-- Replays the grant if the id holds a recent one (its reply was lost). An older one was booked for
-- an earlier try whose give failed: it has ended, and this is a new grant. While jobs wait it
-- leaves their share of the quota and of the open calls.
-- KEYS 1 quota  2 slots  3 waiting interactive jobs  4 claims  5 parked  6 size
-- ARGV 1 now  2 id  3 org  4 user  5 tokens  6 lease us  7-11 rpm tpm concurrency burst otpm
-- (quota_limits)
--      12 model ("" = any)  13 lane of a call that cannot wait in the queue ("" = it can)
--      14 priority (h, l, "" = normal)
-- Reply "ok <at us> <age us, of a replay; -1: it does not age, there is no quota> <trial: its answer
-- decides whether others may follow>"
--      | "busy <wait us, -1 = never> <reason>", with never the limit
--
-- This runs before every live call. If the quota has capacity, no job waits, and the newest slot of
-- the ring is unchanged, the library is not needed: `granted` then does what quota_open,
-- quota_wait, quota_charge and quota_close would do, with the same arithmetic, and leaves what
-- belongs in the ring in the text. It writes nothing before it is sure of that. Functions and
-- tables cost as much as commands here, so it has none, and those of the library are created only
-- when they are used.

local quota_key, slots, waiting, claims, parked, size = unpack(KEYS)
local given, id, org, user, tokens, lease, rpm, tpm, concurrency, burst, otpm, model, lane, priority = unpack(ARGV)
model, lane = model or '', lane or '' -- an older version leaves them out
local LIMITS_AT = 7 -- start of the limits in ARGV

local TEXT = '^(%d+),(%d+),([^,]+),([^,]+),([^,]+),([^,]*),([^,]*),([^,]*),([^,]*),' ..
  '([^,]*),([^,]*),([^,]*),([^,]*),([^,]*),([^,]*),(.*)$'

local MOST = 2000000000000 -- more millionths are too long for %d

local function granted()
  if otpm ~= '-1' then return nil end -- it counts output apart
  local call, floor, max, min = redis.call, math.floor, math.max, math.min
  local text, blocked, jobs_wait, factor, since, pace, learned_rpm, learned_tpm, off, one, trial =
    unpack(call('HMGET', quota_key, '_', 'blk', 'bk', 'f', 'fa', 'rq', 'rn', 'tn', 'off', 'mb', 'try'))
  if not text or one or trial then return nil end
  -- Of requests (r) and tokens (t): s sum, l level, d draw, v set aside, x used by live calls, a
  -- and b the amount and draw of the newest slot.
  local last, slot, rs, rl, rd, rv, rx, ra, rb, ts, tl, td, tv, tx, ta, tb = text:match(TEXT)
  if not last then return nil end
  local now = now_us(given) + (off or 0)
  if last - now > 2000000 then return nil end
  now = max(now, last + 0)
  if floor(now / 100000) ~= slot + 0 then return nil end
  if (blocked or 0) - now > 0 or (jobs_wait or 0) - now > 0 or pace then return nil end
  if since and factor + max(now - since, 0) / 50000 < 1000 then return nil end

  local requests, most, open, took = rpm + 0, tpm + 0, concurrency + 0, now - last -- of a minute
  if learned_rpm and learned_rpm + 0 > 0 and (requests == 0 or learned_rpm - requests < 0) then
    requests = learned_rpm + 0
  end
  if learned_tpm and learned_tpm + 0 > 0 and (most == 0 or learned_tpm - most < 0) then most = learned_tpm + 0 end
  if requests == 0 or requests > MOST or most > MOST then return nil end

  local quota, cap = requests * 1000000, max(floor(requests * burst * 1000 / 1000000), 1) * 1000000
  rs, rl, rd, rb = rs + 1, min(rl + 0, cap), rd + 0, (rb == '' and 0 or rb) + 0
  if rs > requests then return nil end
  local before = max(rl, 0)
  rl = min(rl + floor(took * (max(quota - max(rd, 0), quota / 100) / 60600000)), cap)
  if min(1000000, cap) - rl > 0 then return nil end
  rl = rl - 1000000
  local drawn = before - max(rl, 0)
  rd, rb, ra, rx = rd + drawn, rb + drawn, (ra == '' and 0 or ra) + 1, (rx == '' and 0 or rx) + 1

  if most > 0 then
    local cost = min(tokens + 0, most)
    if tokens - cost > 0 or tl == '' then return nil end
    quota, cap = most * 1000000, max(floor(most * burst * 1000 / 1000000), 1) * 1000000
    if cost * 1000000 > cap then return nil end
    ts, tl, td, tb = ts + cost, min(tl + 0, cap), td + 0, (tb == '' and 0 or tb) + 0
    if ts > most then return nil end
    before = max(tl, 0)
    tl = min(tl + floor(took * (max(quota - max(td, 0), quota / 100) / 60600000)), cap)
    if cost * 1000000 - tl > 0 then return nil end
    tl = tl - cost * 1000000
    drawn = before - max(tl, 0)
    local fmt = string.format
    td, tb = fmt('%d', td + drawn), fmt('%d', tb + drawn)
    ta, tx = fmt('%d', (ta == '' and 0 or ta) + cost), fmt('%d', (tx == '' and 0 or tx) + cost)
    ts, tl, tv = fmt('%d', ts), fmt('%d', tl), '0'
  end

  -- Dead slots only make it look fuller; they are checked when there is no capacity left.
  local used = call('ZCARD', slots)
  if call('EXISTS', waiting) == 1 then return nil end
  if open > 0 and (used >= open or used == 0 and call('EXISTS', claims) == 1) then return nil end
  if call('ZADD', slots, 'NX', string.format('%d', now - (off or 0) + lease), id) == 0 then return nil end
  if used == 0 then call('PEXPIRE', slots, 3600000) end
  call('HSET', quota_key, '_', string.format('%d,%s,%d,%d,%d,0,%d,%d,%d,', now, slot, rs, rl, rd, rx, ra, rb) ..
    ts .. ',' .. tl .. ',' .. td .. ',' .. tv .. ',' .. tx .. ',' .. ta .. ',' .. tb)
  return string.format('ok %d', now)
end

local ok = granted()
if ok then return ok end

--+ quota

-- REPLAYED is the maximum age of a grant that is replayed: half of its life is left.
local REPLAYED = 250000

-- goes_first reports whether a waiting job of the call's flow has priority over the call. A call
-- that can wait comes after all of them; one that cannot, only after those that may run or that
-- wait for the same limit.
local function goes_first(now)
  local flow = org .. ' ' .. user
  local first = redis.call('ZRANGEBYLEX', waiting, '[' .. flow .. ' ', '(' .. flow .. '!', 'LIMIT', 0, 1)[1]
  if not first or lane == '' then return first end
  --+ rings
  --+ flows
  local found = false
  flow_lanes({ wait = { waiting } }, 1, org, user, function(_, other)
    local rests = false
    for _, till in ipairs(redis.call('ZMSCORE', parked, unpack(subjects_of(org, user, other)))) do
      rests = rests or till and till - now > 0
    end
    found = found or string.sub(other, 1, #lane) == lane or not rests
  end)
  return found
end

-- yields reports whether a call leaves scarce quota to waiting jobs: one of low priority to all of
-- them, one of normal priority to its org's interactive jobs of high priority. A call that cannot wait
-- in the queue does not yield, because it would never run.
local function yields(quota)
  if not quota.waiting or lane ~= '' or priority == 'h' then return false end
  return priority == 'l' or (redis.call('HGET', size, 'h ' .. org) or 0) - 0 > 0
end

tokens, lease = tonumber(tokens), tonumber(lease)
local limits = quota_limits(LIMITS_AT)
local held = redis.call('ZSCORE', slots, id)
if held then
  local age = math.abs(now_us(given) - (held - lease))
  if age <= REPLAYED then
    local at = held - lease + (redis.call('HGET', quota_key, 'off') or 0)
    return 'ok ' .. int(at) .. ' ' .. int(age)
  end
  redis.call('ZREM', slots, id)
end
if otpm == '-1' and limits.t > 0 and tokens > limits.t then return 'busy -1 never ' .. int(limits.t) end
local quota = quota_open(quota_key, given, limits)
local never = otpm == '-1' and quota.tokens and quota.tokens.limit or math.huge -- of input, any part may be in a cache
if tokens > never then
  if model == '' or model == redis.call('HGET', quota_key, 'tw') then -- the limit of another model does not apply
    quota_close(quota)
    return 'busy -1 never ' .. int(never)
  end
end
quota.other = quota.one and model ~= '' and model ~= quota.one.name
local now = quota.now - quota.off
local open, full = slots_open(slots, claims, now), false
quota_trial(quota, slots)
if limits.conc > 0 then
  local aside = quota.waiting and limits.conc > 1 and math.max(math.floor(limits.conc * quota.share / 1000), 1) or 0
  full = open >= limits.conc or aside > 0 and open - redis.call('ZCARD', claims) >= limits.conc - aside
end
local wait, why = quota_wait(quota, tokens, 'live')
if wait == 0 and goes_first(now) then wait, why = 100000, 'flow' end
if wait == 0 and yields(quota) then wait, why = 100000, 'priority' end
if wait == 0 and full then wait, why = 50000, 'concurrency' end
if wait > 0 then
  quota_close(quota)
  return 'busy ' .. int(wait) .. ' ' .. why
end
quota_charge(quota, tokens, 'live')
local tries = quota_tries(quota, id)
quota_close(quota)
redis.call('ZADD', slots, int(now + lease), id)
redis.call('PEXPIRE', slots, 3600000)
local age = quota_free(quota) and ' -1' or tries and ' 0' or ''
return 'ok ' .. int(quota.now) .. age .. (tries and ' trial' or '')
