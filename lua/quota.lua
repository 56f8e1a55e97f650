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
-- Hash: now, blk (blocked until), slot (newest ring slot), and per metric m in
-- {r, t}: m..'s' sum, m..'l' bucket level in millionths (negative: debt),
-- m..'d' sum of draws in millionths, m..<i> ring of amounts, m..'d'..<i> ring
-- of draws. Times are microseconds.

local SLOT, SLOTS = 100000, 606
local WINDOW = SLOT * SLOTS
local MICRO = 1000000

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

-- The filling rate in millionths per microsecond, never below 1 % of the quota.
local function quota_rate(m)
  local free = m.limit * MICRO - math.max(m.draw + m.drawn, 0)
  return math.max(free, m.limit * MICRO / 100) / WINDOW
end

-- quota_open reads the state, moves it to now and returns it.
local function quota_open(key, given, limits)
  local h = redis.call('HMGET', key, 'now', 'blk', 'slot', 'rs', 'rl', 'rd', 'ts', 'tl', 'td')
  local last = tonumber(h[1]) or 0
  local q = { key = key, now = math.max(now_us(given), last), blk = tonumber(h[2]) or 0, metrics = {} }
  q.slot = math.floor(q.now / SLOT)
  for k, name in ipairs({ 'r', 't' }) do
    local limit = limits[name]
    if limit > 0 then
      local cap = math.max(math.floor(limit * limits.burst / 1000), 1) * MICRO
      local at = 1 + k * 3
      q.metrics[#q.metrics + 1] = {
        name = name, limit = limit, cap = cap, drawn = 0, added = 0,
        sum = tonumber(h[at]) or 0, level = tonumber(h[at + 1]) or cap, draw = tonumber(h[at + 2]) or 0,
      }
    end
  end
  local from = tonumber(h[3])
  if from and q.slot - from >= SLOTS then
    redis.call('DEL', key)
    for _, m in ipairs(q.metrics) do m.sum, m.level, m.draw = 0, m.cap, 0 end
  elseif from then
    quota_expire(q, from + 1, q.slot)
    for _, m in ipairs(q.metrics) do quota_move(m, math.floor((q.now - last) * quota_rate(m))) end
  end
  return q
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

-- quota_wait returns 0, or the microseconds until a grant of `tokens` may fit
-- and what refuses it. Concurrency comes last: the caller counts its slots.
local function quota_wait(q, tokens)
  if q.now < q.blk then return q.blk - q.now, 'blocked' end
  for _, m in ipairs(q.metrics) do
    local cost = m.name == 'r' and 1 or math.min(tokens, m.limit)
    local why = m.name == 'r' and 'rpm' or 'tpm'
    if m.sum + cost > m.limit then
      return math.max(quota_ring_wait(q, m, m.sum + cost - m.limit), 1), why
    end
    local short = math.min(cost * MICRO, m.cap) - m.level
    if short > 0 then return math.max(math.ceil(short / quota_rate(m)), 1), why end
  end
  return 0, ''
end

-- quota_charge books one request of `tokens` now.
local function quota_charge(q, tokens)
  for _, m in ipairs(q.metrics) do
    local cost = m.name == 'r' and 1 or math.min(tokens, m.limit)
    m.sum, m.added = m.sum + cost, m.added + cost
    quota_move(m, -cost * MICRO)
  end
end

-- quota_refund takes back what was charged at time `at`, if still in the ring.
local function quota_refund(q, at, tokens)
  local s = math.floor(at / SLOT)
  if q.slot - s >= SLOTS or s > q.slot then return end
  for _, m in ipairs(q.metrics) do
    local cost = m.name == 'r' and 1 or math.min(tokens, m.limit)
    local field = m.name .. int(s % SLOTS)
    local have = tonumber(redis.call('HGET', q.key, field) or 0)
    cost = math.min(cost, have)
    redis.call('HINCRBY', q.key, field, int(0 - cost))
    m.sum = m.sum - cost
    quota_move(m, cost * MICRO)
  end
end

-- quota_close writes the state back.
local function quota_close(q)
  local set = { 'now', int(q.now), 'slot', int(q.slot) }
  local function put(field, value) set[#set + 1] = field; set[#set + 1] = value end
  if q.now < q.blk then put('blk', int(q.blk)) end
  local i = int(q.slot % SLOTS)
  for _, m in ipairs(q.metrics) do
    if m.added > 0 then redis.call('HINCRBY', q.key, m.name .. i, int(m.added)) end
    if m.drawn ~= 0 then redis.call('HINCRBY', q.key, m.name .. 'd' .. i, int(m.drawn)) end
    put(m.name .. 's', int(m.sum)); put(m.name .. 'l', int(m.level)); put(m.name .. 'd', int(m.draw + m.drawn))
  end
  redis.call('HSET', q.key, unpack(set))
  redis.call('PEXPIRE', q.key, int(120000 + math.ceil(math.max(q.blk - q.now, 0) / 1000)))
end

-- slots_open purges dead slots and counts the open ones.
local function slots_open(key, now)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', int(now))
  return redis.call('ZCARD', key)
end
