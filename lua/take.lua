-- take: a grant of provider quota for one live call. Needs time; quota.lua stands below.
-- Replays the grant when the id holds one that is fresh (a lost reply). An older one was
-- booked for an earlier try, whose give failed: it has ended, and this is a new one.
-- While jobs wait it leaves their share of the quota and of the open calls.
-- KEYS 1 quota  2 slots  3 waiting interactive jobs  4 claims  5 parked
-- ARGV 1 now  2 id  3 org  4 user  5 tokens  6 lease us  7-10 rpm tpm concurrency burst
--      11 model ("" = any)  12 lane of a call that cannot wait in the queue ("" = it can)
-- Reply "ok <at us> <age us, of a replay; -1: it does not age, there is no quota>" | "busy <wait us, -1 = never> <reason>", with never the limit
--
-- This runs before every live call. Where the quota has room, nobody waits, and the
-- newest slot of the ring is still the same, nothing of the library is needed: then
-- `granted` does what quota_open, quota_wait, quota_charge and quota_close would, with the
-- same arithmetic, and leaves what belongs into the ring in the text. It writes nothing
-- before it is sure of that. Functions and tables cost as much as commands here, so it
-- has none, and those of the library are made only when they are used.

local TEXT = '^(%d+),(%d+),([^,]+),([^,]+),([^,]+),([^,]*),([^,]*),([^,]*),([^,]*),' ..
  '([^,]*),([^,]*),([^,]*),([^,]*),([^,]*),([^,]*),(.*)$'

local MOST = 2000000000000 -- millionths of more are too long for %d

local function granted()
  local call, floor, max, min, A = redis.call, math.floor, math.max, math.min, ARGV
  local h = call('HMGET', KEYS[1], '_', 'blk', 'bk', 'f', 'fa', 'rq', 'rn', 'tn', 'off')
  if not h[1] then return nil end
  local last, slot, rs, rl, rd, rv, rx, ra, rb, ts, tl, td, tv, tx, ta, tb = h[1]:match(TEXT)
  if not last then return nil end
  local now = now_us(A[1]) + (h[9] or 0)
  if last - now > 2000000 then return nil end
  now = max(now, last + 0)
  if floor(now / 100000) ~= slot + 0 then return nil end
  if (h[2] or 0) - now > 0 or (h[3] or 0) - now > 0 or h[6] then return nil end
  if h[5] and h[4] + max(now - h[5], 0) / 50000 < 1000 then return nil end

  local rpm, tpm, open, took = A[7] + 0, A[8] + 0, A[9] + 0, now - last
  if h[7] and h[7] + 0 > 0 and (rpm == 0 or h[7] - rpm < 0) then rpm = h[7] + 0 end
  if h[8] and h[8] + 0 > 0 and (tpm == 0 or h[8] - tpm < 0) then tpm = h[8] + 0 end
  if rpm == 0 or rpm > MOST or tpm > MOST then return nil end

  local quota, cap = rpm * 1000000, max(floor(rpm * A[10] * 1000 / 1000000), 1) * 1000000
  rs, rl, rd, rb = rs + 1, min(rl + 0, cap), rd + 0, (rb == '' and 0 or rb) + 0
  if rs > rpm then return nil end
  local before = max(rl, 0)
  rl = min(rl + floor(took * (max(quota - max(rd, 0), quota / 100) / 60600000)), cap)
  if min(1000000, cap) - rl > 0 then return nil end
  rl = rl - 1000000
  local drawn = before - max(rl, 0)
  rd, rb, ra, rx = rd + drawn, rb + drawn, (ra == '' and 0 or ra) + 1, (rx == '' and 0 or rx) + 1

  if tpm > 0 then
    local cost = min(A[5] + 0, tpm)
    if A[5] - cost > 0 or tl == '' then return nil end
    quota, cap = tpm * 1000000, max(floor(tpm * A[10] * 1000 / 1000000), 1) * 1000000
    if cost * 1000000 > cap then return nil end
    ts, tl, td, tb = ts + cost, min(tl + 0, cap), td + 0, (tb == '' and 0 or tb) + 0
    if ts > tpm then return nil end
    before = max(tl, 0)
    tl = min(tl + floor(took * (max(quota - max(td, 0), quota / 100) / 60600000)), cap)
    if cost * 1000000 - tl > 0 then return nil end
    tl = tl - cost * 1000000
    drawn = before - max(tl, 0)
    local f = string.format
    td, tb, ta, tx = f('%d', td + drawn), f('%d', tb + drawn), f('%d', (ta == '' and 0 or ta) + cost), f('%d', (tx == '' and 0 or tx) + cost)
    ts, tl, tv = f('%d', ts), f('%d', tl), '0'
  end

  -- Dead slots only make it look fuller; the others are looked at where there is no room.
  local used = call('ZCARD', KEYS[2])
  if call('EXISTS', KEYS[3]) == 1 then return nil end
  if open > 0 and (used >= open or used == 0 and call('EXISTS', KEYS[4]) == 1) then return nil end
  if call('ZADD', KEYS[2], 'NX', string.format('%d', now - (h[9] or 0) + A[6]), A[2]) == 0 then return nil end
  if used == 0 then call('PEXPIRE', KEYS[2], 3600000) end
  call('HSET', KEYS[1], '_', string.format('%d,%s,%d,%d,%d,0,%d,%d,%d,', now, slot, rs, rl, rd, rx, ra, rb) ..
    ts .. ',' .. tl .. ',' .. td .. ',' .. tv .. ',' .. tx .. ',' .. ta .. ',' .. tb)
  return string.format('ok %d', now)
end

local ok = granted()
if ok then return ok end

--+ quota

-- REPLAYED is how old a grant is at most that is replayed: half of its life is left.
local REPLAYED = 250000

-- goes_first reports whether a waiting job of the call's flow goes before it. One that can
-- wait goes behind all of them; one that cannot only behind those that may run, or
-- that wait for the same as it would.
local function goes_first(now)
  local org, user, mine = ARGV[3], ARGV[4], ARGV[12] or ''
  local flow = org .. ' ' .. user
  local first = redis.call('ZRANGEBYLEX', KEYS[3], '[' .. flow .. ' ', '(' .. flow .. '!', 'LIMIT', 0, 1)[1]
  if not first or mine == '' then return first end
--+ rings
--+ flows
  local found = false
  flow_lanes({ wait = { KEYS[3] } }, 1, org, user, function(_, lane)
    local rests = false
    for _, till in ipairs(redis.call('ZMSCORE', KEYS[5], unpack(subjects_of(org, user, lane)))) do
      rests = rests or till and till - now > 0
    end
    found = found or lane == mine or not rests
  end)
  return found
end

local id, tokens = ARGV[2], tonumber(ARGV[5])
local limits, lease = quota_limits(7), tonumber(ARGV[6])
local held = redis.call('ZSCORE', KEYS[2], id)
if held then
  local age = math.abs(now_us(ARGV[1]) - (held - lease))
  if age <= REPLAYED then
    local at = held - lease + (redis.call('HGET', KEYS[1], 'off') or 0)
    return 'ok ' .. int(at) .. ' ' .. int(age)
  end
  redis.call('ZREM', KEYS[2], id)
end
if limits.t > 0 and tokens > limits.t then return 'busy -1 never ' .. int(limits.t) end
local q = quota_open(KEYS[1], ARGV[1], limits)
local most = q.metrics[#q.metrics].limit
if q.metrics[#q.metrics].name == 't' and tokens > most then -- what another model's limit is says nothing of this one
  local model = ARGV[11] or ''
  if model == '' or model == redis.call('HGET', KEYS[1], 'tw') then
    quota_close(q)
    return 'busy -1 never ' .. int(most)
  end
end
local now = q.now - q.off
local open, full = slots_open(KEYS[2], KEYS[4], now), false
if limits.conc > 0 then
  local aside = q.waiting and limits.conc > 1 and math.max(math.floor(limits.conc * q.share / 1000), 1) or 0
  full = open >= limits.conc or aside > 0 and open - redis.call('ZCARD', KEYS[4]) >= limits.conc - aside
end
local wait, why = quota_wait(q, tokens, 'live')
if wait == 0 and goes_first(now) then wait, why = 100000, 'flow' end
if wait == 0 and full then wait, why = 50000, 'concurrency' end
if wait > 0 then
  quota_close(q)
  return 'busy ' .. int(wait) .. ' ' .. why
end
quota_charge(q, tokens, 'live')
quota_close(q)
redis.call('ZADD', KEYS[2], int(now + lease), id)
redis.call('PEXPIRE', KEYS[2], 3600000)
return 'ok ' .. int(q.now) .. (quota_free(q) and ' -1' or '')
