-- Library: the provider quota of a pool. Needs time.lua.
--
-- Requests and tokens each pass two gates. The ring is the hard cap: 606 slots
-- of 100 ms cover 60 s, the 0.5 s a grant may live before it is written
-- upstream, and the slot being written, so no sliding minute of the provider
-- holds more than the quota. The pace before it is a bucket that fills at
-- quota/window: it spreads the quota over the minute. A burst taken from the
-- bucket within the last window slows the filling by as much, so that a burst
-- is repaid smoothly and the ring does not stop everyone when it is full.
--
-- The quota is the smaller of the configured and the learned one (observe.lua).
-- After a refusal of the provider the pace is a part of it, the factor, which
-- grows back by 2 % of the quota a second. A pool without any quota only counts
-- its requests, so that a first refusal has a pace to go below.
--
-- While jobs wait for quota (bk), a part of what flows in is set aside for them
-- (..v): live calls leave it. What a job larger than the bucket waits for is no part of
-- that: it has a reservation (res, reserve.lua). Such a job, or call, is no debt of the
-- bucket either, but a draw, so that what else there is room for can go.
--
-- Hash: `_` is what every grant changes, in one text: "now,slot" (the newest ring
-- slot), and for each metric r and t ",sum,level,draw,aside,live,added,drawn":
-- bucket level in millionths (negative: debt), sum of draws in millionths, set
-- aside, in millionths, used by live calls since acquire looked, and the amount and
-- draw of that slot that are not in the ring yet; empty where there is no such. Then blk
-- (blocked until), bk (jobs wait until), bs (their share, per mille), bt (tokens of the
-- first of them that has no reservation), res, off, gap, f and fa (factor per mille, from when), k (refusals in a row), rq
-- (pace without a quota), and per metric m in {r, t}: m..<i> ring of amounts,
-- m..'d'..<i> ring of draws, m..'n' learned quota, m..'m' and m..'a' of which model (letters)
-- and when, tw that model's name. Times are microseconds.
--
-- The pool's time is that of Redis and off. Redis's clock may step, after a failover or
-- when it is set: then off takes the step back, so that the window stays as it was and time
-- goes on from there. Behind the last use by more than SKEW it has stepped; so it
-- has when it is ahead by more than GAP, or the pool was not looked at for as long, which
-- looks the same. Then the buckets fill and blocks end, as after such a time, but what was
-- used before counts on, for up to a minute more; when that was so the last time too
-- (gap), nobody was there in between, and a minute passes.
--
-- take.lua does by itself what most calls need: a change here may have to be made
-- there too.

local SLOT, SLOTS = 100000, 606
local WINDOW = SLOT * SLOTS
local MICRO = 1000000
local SKEW, GAP = 2 * MICRO, 120 * MICRO
local QUOTA_LIFE = 3600000 -- ms; a step ahead that is longer than this loses the window
-- HELD is how long a reservation binds after acquire has last seen its job. The modes of
-- a reservation stand in reserve.lua.
local HELD = 2 * MICRO
local OPEN, STRICT, VAIN, CLOSING = 0, 1, 2, 3
local QUOTA_TEXT = '^(%d+),(%d+)' .. string.rep(',([^,]*)', 14) .. '$'

-- quota_limits reads rpm, tpm, concurrency and burst (per mille) from ARGV[at...].
local function quota_limits(at)
  return {
    r = tonumber(ARGV[at]), t = tonumber(ARGV[at + 1]),
    conc = tonumber(ARGV[at + 2]), burst = tonumber(ARGV[at + 3]),
  }
end

local function quota_expire(q, from, to)
  for base = from, to, 100 do
    local fields = {}
    for s = base, math.min(base + 99, to) do
      local i = int(s % SLOTS)
      for _, m in ipairs(q.metrics) do
        fields[#fields + 1] = m.name .. i
        fields[#fields + 1] = m.name .. 'd' .. i
      end
    end
    if #fields == 0 then return end
    local old, stale, k = redis.call('HMGET', q.key, unpack(fields)), {}, 1
    while k <= #fields do
      for _, m in ipairs(q.metrics) do
        if old[k] then m.sum = m.sum - tonumber(old[k]); stale[#stale + 1] = fields[k] end
        if old[k + 1] then m.draw = m.draw - tonumber(old[k + 1]); stale[#stale + 1] = fields[k + 1] end
        k = k + 2
      end
    end
    if #stale > 0 then redis.call('HDEL', q.key, unpack(stale)) end
  end
end

-- move adds delta millionths to the bucket and books the change of its part
-- above zero as a draw in the current slot.
local function quota_move(m, delta)
  local before = math.max(m.level, 0)
  m.level = math.min(m.level + delta, m.cap)
  m.drawn = m.drawn + before - math.max(m.level, 0)
end

-- quota_book adds delta tokens or requests. What is more than the bucket holds is booked
-- as a draw alone.
local function quota_book(m, delta)
  delta = delta * MICRO
  if math.abs(delta) <= m.cap then return quota_move(m, delta) end
  m.drawn = m.drawn - delta
  if delta < 0 then m.level = math.min(m.level, 0) end
end

-- The filling rate in millionths per microsecond, never below 1 % of the quota.
local function quota_rate(q, m)
  local free = m.pace * MICRO - math.max(m.draw + m.drawn, 0)
  return math.max(free, m.pace * MICRO / 100) / WINDOW * q.factor / 1000
end

-- quota_fill lets time flow into the buckets and into what is set aside.
local function quota_fill(q, took)
  for _, m in ipairs(q.metrics) do
    if m.pace then
      local inflow = math.floor(took * quota_rate(q, m))
      quota_move(m, inflow)
      if q.waiting then
        local head = (m.name == 'r' and 1 or q.head) * MICRO
        m.aside = math.min(m.aside + inflow * q.share / 1000, m.cap, math.max(m.cap * q.share / 1000, head))
      end
    end
    if not q.waiting then m.aside = 0 end
  end
end

-- reservation reads a reservation; nil when there is none.
local function reservation(text)
  if not text then return nil end
  local id, tokens, credit, over, mode, from, used, seen =
    string.match(text, '^(%S+) (%d+) (%d+) (%d+) (%d) (%d+) (%d+) (%d+)$')
  if not id then return nil end
  return { id = id, tokens = tokens + 0, credit = credit + 0, over = over + 0, mode = mode + 0,
    from = from + 0, used = used + 0, seen = seen + 0 }
end

-- quota_read makes the state of now from the hash's fields.
local function quota_read(key, given)
  local h = redis.call('HMGET', key, '_', 'blk', 'bk', 'bs', 'bt', 'f', 'fa', 'rq', 'rn', 'tn', 'res', 'off', 'gap')
  local v = h[1] and { string.match(h[1], QUOTA_TEXT) } or {}
  local last = tonumber(v[1]) or 0
  local raw, off = now_us(given), tonumber(h[12]) or 0
  local ahead = raw + off - last
  local stepped = last > 0 and (ahead < -SKEW or ahead > GAP)
  local gap = stepped and ahead > GAP
  if gap and tonumber(h[13]) == last then last = last + WINDOW end
  local passed = gap and raw + off - last or 0
  if stepped then off = last - raw end
  local q = { key = key, last = last, now = math.max(raw + off, last), off = off, stepped = stepped, gap = gap,
    blk = (tonumber(h[2]) or 0) - passed,
    from = tonumber(v[2]), share = tonumber(h[4]) or 0, head = tonumber(h[5]) or 0,
    factor = tonumber(h[6]) or 1000, since = math.max((tonumber(h[7]) or 0) - passed, 0), soft = tonumber(h[8]), metrics = {},
    text = v, learned = { r = h[9], t = h[10] }, res = reservation(h[11]) }
  q.slot = math.floor(q.now / SLOT)
  q.waiting = (tonumber(h[3]) or 0) > q.now
  if q.since > 0 then
    q.factor = q.factor + math.max(q.now - q.since, 0) / 50000
    if q.soft and q.factor >= 10000 then q.soft = nil end
    if not q.soft then q.factor = math.min(q.factor, 1000) end
  end
  return q
end

-- quota_flush brings into the ring what its newest slot still lacks.
local function quota_flush(q)
  for at, name in pairs({ [8] = 'r', [9] = 'rd', [15] = 't', [16] = 'td' }) do
    local n = q.text[at]
    if n and n ~= '' and n ~= '0' then redis.call('HINCRBY', q.key, name .. int(q.from % SLOTS), n) end
    q.text[at] = '0'
  end
end

-- quota_open reads the state, moves it to now and returns it. A metric without
-- quota has limit math.huge; without pace its bucket is not looked at.
local function quota_open(key, given, limits)
  local q = quota_read(key, given)
  local v = q.text
  for k, name in ipairs({ 'r', 't' }) do
    local at = k * 7 - 4
    local limit, learned = limits[name], tonumber(q.learned[name]) or 0
    if learned > 0 and (limit == 0 or learned < limit) then limit = learned end
    if limit > 0 or name == 'r' then
      local pace = limit > 0 and limit or q.soft
      local factor = limit > 0 and math.min(q.factor, 1000) or q.factor
      local cap = pace and math.max(math.floor(pace * limits.burst * factor / 1000000), 1) * MICRO
      q.metrics[#q.metrics + 1] = {
        name = name, at = at, limit = limit > 0 and limit or math.huge, pace = pace, cap = cap, drawn = 0, added = 0,
        sum = tonumber(v[at]) or 0, level = cap and math.min(tonumber(v[at + 1]) or cap, cap), draw = tonumber(v[at + 2]) or 0,
        aside = tonumber(v[at + 3]) or 0, live = tonumber(v[at + 4]) or 0,
      }
    end
  end
  if q.from and q.slot - q.from >= SLOTS then
    local learned = redis.call('HMGET', key, 'rn', 'rm', 'ra', 'tn', 'tm', 'ta', 'tw', 'f', 'fa', 'rq', 'off')
    q.kept = {}
    for k, field in ipairs({ 'rn', 'rm', 'ra', 'tn', 'tm', 'ta', 'tw', 'f', 'fa', 'rq', 'off' }) do
      if learned[k] then q.kept[#q.kept + 1] = field; q.kept[#q.kept + 1] = learned[k] end
    end
    redis.call('DEL', key)
    q.text, q.res = {}, nil
    for _, m in ipairs(q.metrics) do m.sum, m.level, m.draw = 0, m.cap, 0 end
  elseif q.from then
    quota_flush(q)
    quota_expire(q, q.from + 1, q.slot)
    quota_fill(q, q.now - q.last)
  end
  if q.gap then
    for _, m in ipairs(q.metrics) do m.level = m.cap or 0 end
  end
  return q
end

-- quota_free reports whether a pool has neither a quota nor a pace: nothing can be too much
-- for it in a minute.
local function quota_free(q)
  return #q.metrics == 1 and q.metrics[1].limit == math.huge and not q.metrics[1].pace
end

-- The time until `need` of the ring's sum has left the window.
local function quota_ring_wait(q, m, need)
  for base = q.slot - SLOTS + 1, q.slot, 64 do
    local fields = {}
    for s = base, math.min(base + 63, q.slot) do fields[#fields + 1] = m.name .. int(s % SLOTS) end
    for k, v in ipairs(redis.call('HMGET', q.key, unpack(fields))) do
      need = need - (tonumber(v or 0) or 0)
      if need <= 0 then return (base + k - 1 + SLOTS) * SLOT - q.now end
    end
  end
  return WINDOW
end

-- quota_reserved returns how long a call, or a job that is not the one that quota is
-- reserved for, has to leave it alone. Until the reservation is due, calls and jobs
-- together get what it leaves of a minute, spread over it.
local function quota_reserved(q, m, cost, who)
  local r = q.res
  if not r or who == 'head' or m.name ~= 't' or q.now - r.seen > HELD then return 0 end
  local first = r.mode == STRICT or r.mode == CLOSING and r.over >= r.tokens
  if first and who == 'job' then return math.max(r.from + WINDOW - q.now, 1) end
  if r.mode ~= CLOSING then return 0 end
  local room, took = math.max(m.limit - r.tokens, 0), q.now - r.from
  local aside = who == 'live' and math.max(math.min(math.floor(m.aside / MICRO), room - cost), 0) or 0
  local need = math.min(r.used + m.live, m.sum) + cost + aside
  if need <= room * math.min(took / WINDOW + 0.1, 1) then return 0 end
  local till = need <= room and math.ceil((need / room - 0.1) * WINDOW) or 2 * WINDOW
  return math.max(till - took, 1)
end

-- quota_wait returns 0, or the microseconds until a grant of `tokens` may fit
-- and what refuses it. Who asks is a live call, which leaves what is set aside for
-- jobs, a job, or the head: the job that quota is reserved for.
-- Concurrency comes last: the caller counts its slots.
local function quota_wait(q, tokens, who)
  if q.now < q.blk then return q.blk - q.now, 'blocked' end
  for _, m in ipairs(q.metrics) do
    local cost = m.name == 'r' and 1 or math.min(tokens, m.limit)
    local why = m.name == 'r' and 'rpm' or 'tpm'
    local kept = quota_reserved(q, m, cost, who)
    if kept > 0 then return kept, why end
    local aside = who == 'live' and m.aside or 0
    local over = m.sum + cost + math.min(math.floor(aside / MICRO), m.limit - cost) - m.limit
    if over > 0 then return math.max(quota_ring_wait(q, m, over), 1), why end
    local paid = who == 'head' and m.name == 't' and q.res.credit >= cost * MICRO
    local short = m.pace and not paid and math.min(cost * MICRO + aside, m.cap) - m.level or 0
    if short > 0 then return math.max(math.ceil(short / quota_rate(q, m)), 1), why end
  end
  return 0, ''
end

-- quota_charge books one request of `tokens` now.
local function quota_charge(q, tokens, who)
  for _, m in ipairs(q.metrics) do
    local cost = m.name == 'r' and 1 or math.min(tokens, m.limit)
    m.sum, m.added = m.sum + cost, m.added + cost
    if m.pace then quota_book(m, -cost) end
    if who == 'live' then m.live = m.live + cost else m.aside = math.max(m.aside - cost * MICRO, 0) end
  end
end

-- quota_return takes `cost` of a metric, charged at time `at`, back, if it is
-- still in the ring.
local function quota_return(q, m, at, cost)
  local s = math.floor(at / SLOT)
  if q.slot - s >= SLOTS or s > q.slot then return end
  local field = m.name .. int(s % SLOTS)
  cost = math.min(cost, tonumber(redis.call('HGET', q.key, field) or 0))
  redis.call('HINCRBY', q.key, field, int(0 - cost))
  m.sum = m.sum - cost
  if m.pace then quota_book(m, cost) end
end

-- quota_refund takes back what was charged at time `at` for an unused grant.
local function quota_refund(q, at, tokens)
  for _, m in ipairs(q.metrics) do
    quota_return(q, m, at, m.name == 'r' and 1 or math.min(tokens, m.limit))
  end
end

-- quota_correct replaces the tokens charged at time `at` by those used, which
-- the provider counts now.
local function quota_correct(q, at, tokens, used)
  for _, m in ipairs(q.metrics) do
    if m.name == 't' then
      quota_return(q, m, at, math.min(tokens, m.limit))
      m.sum, m.added = m.sum + used, m.added + used
      if m.pace then quota_book(m, -used) end
    end
  end
end

-- quota_stepped writes what a step of the clock has changed, but for blk.
local function quota_stepped(q, put)
  put('off', int(q.off))
  if not q.gap then return end
  put('gap', int(q.now))
  if q.since > 0 then put('fa', int(q.since)) end
end

-- quota_close writes the state back. What was learned outlives a quiet week.
local function quota_close(q)
  local set, v = q.kept or {}, q.text
  local function put(field, value) set[#set + 1] = field; set[#set + 1] = value end
  if q.stepped then quota_stepped(q, put) end
  if q.now < q.blk or q.gap then put('blk', int(math.max(q.blk, 0))) end
  if q.till then put('bk', int(q.till)); put('bs', int(q.share)); put('bt', int(q.head)) end
  if q.reserve then put('res', q.reserve) end
  local i = int(q.slot % SLOTS)
  v[1], v[2] = int(q.now), int(q.slot)
  for _, m in ipairs(q.metrics) do
    if m.added > 0 then redis.call('HINCRBY', q.key, m.name .. i, int(m.added)) end
    if m.drawn ~= 0 then redis.call('HINCRBY', q.key, m.name .. 'd' .. i, int(m.drawn)) end
    v[m.at] = int(m.sum)
    if m.pace then
      v[m.at + 1], v[m.at + 2] = int(m.level), int(m.draw + m.drawn)
      v[m.at + 3], v[m.at + 4] = int(m.aside), int(m.live)
    end
  end
  for k = 3, 16 do v[k] = v[k] or '' end
  put('_', table.concat(v, ',', 1, 16))
  redis.call('HSET', q.key, unpack(set))
  local learned = q.learned.r or q.learned.t or q.since > 0
  redis.call('PEXPIRE', q.key, int((learned and 604800000 or QUOTA_LIFE) + math.ceil(math.max(q.blk - q.now, 0) / 1000)))
end

-- quota_settle ends a grant of `tokens` at time `at`: how is 'unused' (all of
-- it returns), 'booked' (all of it counts), or the tokens used. Limits are at ARGV[from...].
local function quota_settle(key, given, from, how, at, tokens)
  if how == 'booked' then return end
  local q = quota_open(key, given, quota_limits(from))
  if how == 'unused' then quota_refund(q, at, tokens) else quota_correct(q, at, tokens, tonumber(how)) end
  quota_close(q)
end

-- slots_open purges dead slots and counts the open ones. Those of jobs can be told from
-- their claims, should the slots have been lost.
local function slots_open(key, claims, now)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', int(now))
  local open = redis.call('ZCARD', key)
  if open < redis.call('ZCARD', claims) then
    open = redis.call('ZUNIONSTORE', key, 2, key, claims, 'AGGREGATE', 'MAX')
    redis.call('PEXPIRE', key, 3600000)
  end
  return open
end
