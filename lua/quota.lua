-- Library: the provider quota of a pool. Needs time.lua.
--
-- Requests and tokens each pass two gates. The ring is the hard cap: 606 slots of 100 ms cover 60
-- s, the 0.5 s for which a grant may wait before it is written upstream, and the slot being
-- written, so no sliding minute of the provider contains more than the quota. Before it, the pace
-- is a bucket that fills at quota/window; it spreads the quota over the minute. A burst taken from
-- the bucket within the last window slows the filling by the same amount, so that bursts are repaid
-- smoothly and a full ring does not stop all calls.
--
-- Some providers count input and output apart. There, tokens are those of the input, without reads of a
-- cache, and output is a third metric. A grant takes the mean output of past answers, and what was
-- produced replaces it when the answer ends.
--
-- The quota is the smaller of the configured and the learned one (observe.lua). After a refusal by
-- the provider the pace is a fraction of it, the factor, which grows back by 2 % of the quota per
-- second. A pool without any quota only counts its requests, so that a first refusal has a pace to
-- reduce.
--
-- While jobs wait for quota (bk), part of the inflow is set aside for them (..v), and live calls do
-- not use it. A job larger than the bucket does not wait for that part but has a reservation (res,
-- reserve.lua). Such a job or call is booked not as a debt of the bucket but as a draw, so that
-- others with capacity can proceed.
--
-- Hash: `_` is what every grant changes, in one text: "now,slot" (the newest ring slot), and for
-- each metric r and t ",sum,level,draw,aside,live,added,drawn": bucket level in millionths
-- (negative: debt), sum of draws in millionths, set aside, in millionths, used by live calls since
-- the last acquire, and the amount and draw of that slot that are not in the ring yet; empty where
-- not applicable. Then blk, mb, pm and try (see below), bk (jobs wait until), bs (their share, per mille), bt
-- (tokens of the first of them that has no reservation), res, off, gap, f and fa (factor per mille,
-- since when), k (refusals in a row), rq (pace without a quota), and per metric m in {r, t, o}: m..<i>
-- ring of amounts, m..'d'..<i> ring of draws, m..'n' learned quota, m..'m' and m..'a' of which
-- model (letters) and when, tw that model's name. Of output (o) there also are out, its "sum,level,draw,
-- aside,live", mean, its mean per answer, and oe..<i>, what a grant of that slot took. Times are microseconds.
--
-- The pool's time is that of Redis plus off. Redis's clock may step, after a failover or when it is
-- set; then off absorbs the step, so that the window is unchanged and time continues from there.
-- The clock has stepped if it is behind the last use by more than SKEW. It also counts as stepped
-- if it is ahead by more than GAP; a pool that was not used for that long looks the same. Then
-- buckets fill and blocks end, as after such a time, but earlier usage keeps counting for up to a
-- minute. If that was already the case at the last use (gap), the pool was not used in between, and
-- a minute passes.
--
-- A pause ends at blk for all models, and at the till of mb for one: "till own code name", the code as in
-- lanes. own is 1 while the slow pace is that model's, so that others keep theirs. No pause is longer than
-- pm, also if an older version, which knows no bound, or a clock has put its end further away. If the
-- provider may need longer than its pause, one call is tried before the others: try, "id at scope", names
-- the last one ('-': none yet) and its time; scope m is the model of mb, a is all.
--
-- take.lua implements on its own what most calls need: a change here may have to be made there too.

local SLOT, SLOTS = 100000, 606
local WINDOW = SLOT * SLOTS
local MICRO = 1000000
local SKEW, GAP = 2 * MICRO, 120 * MICRO
local PAUSE = 300 * MICRO -- longest pause that an older version may have left
local REPEATED = 5 * MICRO -- a refusal this soon after a pause repeats the one before
local OUTPUT = 4096 -- what an answer is expected to produce as long as no mean is known
local WHY = { r = 'rpm', t = 'tpm', o = 'otpm' }
local TRYING = MICRO -- how soon others ask again while a trial is under way
local QUOTA_LIFE = 3600000 -- ms; a forward step longer than this loses the window
-- HELD is how long a reservation is binding after acquire has last seen its job. reserve.lua
-- explains the modes of a reservation.
local HELD = 2 * MICRO
local OPEN, STRICT, VAIN, CLOSING = 0, 1, 2, 3
local QUOTA_TEXT = '^(%d+),(%d+)' .. string.rep(',([^,]*)', 14) .. '$'

-- quota_limits reads rpm, tpm, concurrency, burst (per mille) and otpm, starting at ARGV `at`. An otpm of -1
-- means that the provider does not count input and output apart; otherwise tpm is that of the input.
local function quota_limits(at)
  local rpm, tpm, concurrency, burst, otpm = unpack(ARGV, at, at + 4)
  return {
    r = tonumber(rpm), t = tonumber(tpm), o = tonumber(otpm),
    conc = tonumber(concurrency), burst = tonumber(burst),
  }
end

local function quota_expire(quota, from, to)
  for base = from, to, 100 do
    local fields = {}
    for s = base, math.min(base + 99, to) do
      local i = int(s % SLOTS)
      for _, metric in ipairs(quota.metrics) do
        fields[#fields + 1] = metric.name .. i
        fields[#fields + 1] = metric.name .. 'd' .. i
      end
    end
    if #fields == 0 then return end
    local old = redis.call('HMGET', quota.key, unpack(fields))
    local stale, k = {}, 1
    while k <= #fields do
      for _, metric in ipairs(quota.metrics) do
        if old[k] then
          metric.sum = metric.sum - tonumber(old[k])
          stale[#stale + 1] = fields[k]
          if metric.name == 'o' then stale[#stale + 1] = 'oe' .. string.sub(fields[k], 2) end
        end
        if old[k + 1] then
          metric.draw = metric.draw - tonumber(old[k + 1])
          stale[#stale + 1] = fields[k + 1]
        end
        k = k + 2
      end
    end
    if #stale > 0 then redis.call('HDEL', quota.key, unpack(stale)) end
  end
end

-- quota_move adds delta millionths to the bucket, and books the change of its part above zero as a
-- draw in the current slot.
local function quota_move(metric, delta)
  local before = math.max(metric.level, 0)
  metric.level = math.min(metric.level + delta, metric.cap)
  metric.drawn = metric.drawn + before - math.max(metric.level, 0)
end

-- quota_book adds delta tokens or requests. More than the bucket's capacity is booked as a draw
-- only.
local function quota_book(metric, delta)
  delta = delta * MICRO
  if math.abs(delta) <= metric.cap then return quota_move(metric, delta) end
  metric.drawn = metric.drawn - delta
  if delta < 0 then metric.level = math.min(metric.level, 0) end
end

-- quota_rate returns the filling rate in millionths per microsecond, at least 1 % of the quota.
local function quota_rate(quota, metric)
  local free = metric.pace * MICRO - math.max(metric.draw + metric.drawn, 0)
  return math.max(free, metric.pace * MICRO / 100) / WINDOW * quota.factor / 1000
end

-- quota_cost returns what a grant of `tokens` takes of a metric.
local function quota_cost(quota, metric, tokens)
  if metric.name == 'r' then return 1 end
  return math.min(metric.name == 't' and tokens or quota.expected, metric.limit)
end

-- quota_fill adds the inflow of a period to the buckets and to what is set aside.
local function quota_fill(quota, took)
  for _, metric in ipairs(quota.metrics) do
    if metric.pace then
      local inflow = math.floor(took * quota_rate(quota, metric))
      quota_move(metric, inflow)
      if quota.waiting then
        local head = quota_cost(quota, metric, quota.head) * MICRO
        local most = math.max(metric.cap * quota.share / 1000, head)
        metric.aside = math.min(metric.aside + inflow * quota.share / 1000, metric.cap, most)
      end
    end
    if not quota.waiting then metric.aside = 0 end
  end
end

-- reservation parses a reservation; nil if there is none.
local function reservation(text)
  if not text then return nil end
  local id, tokens, credit, over, mode, from, used, seen =
    string.match(text, '^(%S+) (%d+) (%d+) (%d+) (%d) (%d+) (%d+) (%d+)$')
  if not id then return nil end
  return { id = id, tokens = tokens + 0, credit = credit + 0, over = over + 0, mode = mode + 0,
    from = from + 0, used = used + 0, seen = seen + 0 }
end

-- pause_of parses the pause of one model, and trial_of the trial; nil if there is none.
local function pause_of(text, now, most, passed)
  local till, own, code, name = string.match(text or '', '^(%d+) (%d) (%S+) (.+)$')
  if not till then return nil end
  till = math.min(till - passed, now + most)
  return { till = till, own = own == '1', code = code, name = name, text = text }
end
local function trial_of(text)
  local id, at, scope = string.match(text or '', '^(%S+) (%d+) (%a)$')
  return id and { id = id, at = at + 0, scope = scope, text = text }
end

-- quota_read builds the current state from the hash's fields.
local function quota_read(key, given)
  local text, blocked, waiting, share, head, factor, since, soft, learned_r, learned_t, learned_o, output, mean,
    reserved, off, last_gap, one, trial, most = unpack(redis.call('HMGET', key,
      '_', 'blk', 'bk', 'bs', 'bt', 'f', 'fa', 'rq', 'rn', 'tn', 'on', 'out', 'mean', 'res', 'off', 'gap', 'mb',
      'try', 'pm'))
  text = text and { string.match(text, QUOTA_TEXT) } or {}
  if text[1] then
    for word in string.gmatch(output or '', '[^,]+') do text[#text + 1] = word end
  end
  local last = tonumber(text[1]) or 0
  local raw = now_us(given)
  off = tonumber(off) or 0
  local ahead = raw + off - last
  local stepped = last > 0 and (ahead < -SKEW or ahead > GAP)
  local gap = stepped and ahead > GAP
  if gap and tonumber(last_gap) == last then last = last + WINDOW end
  local passed = gap and raw + off - last or 0
  if stepped then off = last - raw end
  local quota = {
    key = key, last = last, now = math.max(raw + off, last), off = off, stepped = stepped, gap = gap,
    blk = (tonumber(blocked) or 0) - passed,
    from = tonumber(text[2]), share = tonumber(share) or 0, head = tonumber(head) or 0,
    factor = tonumber(factor) or 1000, since = math.max((tonumber(since) or 0) - passed, 0), soft = tonumber(soft),
    metrics = {}, text = text, learned = { r = learned_r, t = learned_t, o = learned_o },
    mean = tonumber(mean), res = reservation(reserved),
    most = tonumber(most) or PAUSE, try = trial_of(trial),
  }
  quota.blk = math.min(quota.blk, quota.now + quota.most)
  quota.one = pause_of(one, quota.now, quota.most, passed)
  quota.slot = math.floor(quota.now / SLOT)
  quota.waiting = (tonumber(waiting) or 0) > quota.now
  if quota.since > 0 then
    quota.factor = quota.factor + math.max(quota.now - quota.since, 0) / 50000
    if quota.soft and quota.factor >= 10000 then quota.soft = nil end
    if not quota.soft then quota.factor = math.min(quota.factor, 1000) end
  end
  local p = quota.one
  quota.past = p and quota.now >= p.till + REPEATED and not (quota.try and quota.try.scope == 'm') and
    not (p.own and (quota.soft or quota.factor < 1000))
  if quota.past then quota.one = nil end
  return quota
end

-- quota_trial finds out whether a trial is under way: its grant is in the slots until its answer has come.
local function quota_trial(quota, slots)
  local till = quota.try and redis.call('ZSCORE', slots, quota.try.id)
  quota.trying = till and till - (quota.now - quota.off) > 0
end

-- quota_tries makes a granted call the trial, if one is due; it reports whether it did.
local function quota_tries(quota, id)
  local try = quota.try
  if not try or try.scope == 'm' and quota.other then return false end
  try.id, try.at, quota.trying = id, quota.now, true
  return true
end

-- quota_paused returns how long the provider is left alone. Scripts set quota.other for a call of another
-- model than that of quota.one.
local function quota_paused(quota)
  local till = quota.blk
  if quota.one and not quota.other then till = math.max(till, quota.one.till) end
  if quota.now < till then return till - quota.now end
  return quota.trying and not (quota.try.scope == 'm' and quota.other) and TRYING or 0
end

-- quota_paces reports whether the pace restricts a call: not if it was slowed for another model.
local function quota_paces(quota, metric) return metric.pace and not (quota.other and quota.one.own) end

-- quota_flush adds to the ring what its newest slot still lacks.
local function quota_flush(quota)
  for at, name in pairs({ [8] = 'r', [9] = 'rd', [15] = 't', [16] = 'td' }) do
    local n = quota.text[at]
    if n and n ~= '' and n ~= '0' then redis.call('HINCRBY', quota.key, name .. int(quota.from % SLOTS), n) end
    quota.text[at] = '0'
  end
end

-- quota_open reads the state, advances it to now and returns it. A metric without quota has limit
-- math.huge; without pace its bucket is ignored.
local function quota_open(key, given, limits)
  local quota = quota_read(key, given)
  local text = quota.text
  quota.expected = quota.mean or OUTPUT
  for k, name in ipairs({ 'r', 't', 'o' }) do
    local at = k * 7 - 4
    local limit, learned = limits[name], tonumber(quota.learned[name]) or 0
    if learned > 0 and (limit == 0 or learned < limit) then limit = learned end
    if limit > 0 or name == 'r' then
      local pace = limit > 0 and limit or quota.soft
      local factor = limit > 0 and math.min(quota.factor, 1000) or quota.factor
      local cap = pace and math.max(math.floor(pace * limits.burst * factor / 1000000), 1) * MICRO
      local metric = {
        name = name, at = at, why = name == 't' and limits.o >= 0 and 'itpm' or WHY[name],
        limit = limit > 0 and limit or math.huge, pace = pace, cap = cap, drawn = 0, added = 0,
        sum = tonumber(text[at]) or 0, level = cap and math.min(tonumber(text[at + 1]) or cap, cap),
        draw = tonumber(text[at + 2]) or 0, aside = tonumber(text[at + 3]) or 0, live = tonumber(text[at + 4]) or 0,
      }
      quota.metrics[#quota.metrics + 1] = metric
      if name == 't' then quota.tokens = metric elseif name == 'o' then quota.output = metric end
    end
  end
  if quota.from and quota.slot - quota.from >= SLOTS then
    local names = { 'rn', 'rm', 'ra', 'tn', 'tm', 'ta', 'tw', 'on', 'om', 'oa', 'mean', 'f', 'fa', 'rq', 'off',
      'mb', 'try', 'pm' }
    local learned = redis.call('HMGET', key, unpack(names))
    redis.call('DEL', key)
    for k, field in ipairs(names) do
      if learned[k] then redis.call('HSET', key, field, learned[k]) end
    end
    quota.text, quota.res = {}, nil
    for _, metric in ipairs(quota.metrics) do
      metric.sum = 0
      metric.level = metric.cap
      metric.draw = 0
    end
  elseif quota.from then
    quota_flush(quota)
    quota_expire(quota, quota.from + 1, quota.slot)
    quota_fill(quota, quota.now - quota.last)
  end
  if quota.gap then
    for _, metric in ipairs(quota.metrics) do metric.level = metric.cap or 0 end
  end
  if quota.output then
    quota.expected = tonumber(redis.call('HGET', key, 'oe' .. int(quota.slot % SLOTS))) or quota.expected
  end
  return quota
end

-- quota_free reports whether a pool has neither a quota nor a pace, so that nothing exceeds what it
-- can take in a minute.
local function quota_free(quota)
  return #quota.metrics == 1 and quota.metrics[1].limit == math.huge and not quota.metrics[1].pace
end

-- quota_ring_wait returns the time until `need` of the ring's sum has left the window.
local function quota_ring_wait(quota, metric, need)
  for base = quota.slot - SLOTS + 1, quota.slot, 64 do
    local fields = {}
    for s = base, math.min(base + 63, quota.slot) do fields[#fields + 1] = metric.name .. int(s % SLOTS) end
    for k, v in ipairs(redis.call('HMGET', quota.key, unpack(fields))) do
      need = need - (tonumber(v or 0) or 0)
      if need <= 0 then return (base + k - 1 + SLOTS) * SLOT - quota.now end
    end
  end
  return WINDOW
end

-- quota_reserved returns how long a call, or a job other than the one with the reservation, has to
-- leave the quota alone. Until the reservation is due, calls and jobs together get what it leaves
-- of a minute, spread over the minute.
local function quota_reserved(quota, metric, cost, who)
  local res = quota.res
  if not res or who == 'head' or metric.name ~= 't' or quota.now - res.seen > HELD then return 0 end
  local first = res.mode == STRICT or res.mode == CLOSING and res.over >= res.tokens
  if first and who == 'job' then return math.max(res.from + WINDOW - quota.now, 1) end
  if res.mode ~= CLOSING then return 0 end
  local room, took = math.max(metric.limit - res.tokens, 0), quota.now - res.from
  local aside = who == 'live' and math.max(math.min(math.floor(metric.aside / MICRO), room - cost), 0) or 0
  local need = math.min(res.used + metric.live, metric.sum) + cost + aside
  if need <= room * math.min(took / WINDOW + 0.1, 1) then return 0 end
  local till = need <= room and math.ceil((need / room - 0.1) * WINDOW) or 2 * WINDOW
  return math.max(till - took, 1)
end

-- quota_wait returns 0, or the microseconds until a grant of `tokens` may fit and what refuses it.
-- `who` is 'live' for a live call, which leaves what is set aside for jobs, 'job', or 'head' for
-- the job with the reservation. Concurrency is checked last, by the caller, which counts its slots.
local function quota_wait(quota, tokens, who)
  local paused = quota_paused(quota)
  if paused > 0 then return paused, 'blocked' end
  for _, metric in ipairs(quota.metrics) do
    local cost, why = quota_cost(quota, metric, tokens), metric.why
    local kept = quota_reserved(quota, metric, cost, who)
    if kept > 0 then return kept, why end
    local aside = who == 'live' and metric.aside or 0
    local over = metric.sum + cost + math.min(math.floor(aside / MICRO), metric.limit - cost) - metric.limit
    if over > 0 then return math.max(quota_ring_wait(quota, metric, over), 1), why end
    local paid = who == 'head' and metric.name == 't' and quota.res.credit >= cost * MICRO
    local paced = quota_paces(quota, metric) and not paid
    local short = paced and math.min(cost * MICRO + aside, metric.cap) - metric.level or 0
    if short > 0 then return math.max(math.ceil(short / quota_rate(quota, metric)), 1), why end
  end
  return 0, ''
end

-- quota_add books an amount of a metric now.
local function quota_add(quota, metric, n)
  metric.sum, metric.added = metric.sum + n, metric.added + n
  if quota_paces(quota, metric) then quota_book(metric, -n) end
end

-- quota_charge books one request of `tokens` now.
local function quota_charge(quota, tokens, who)
  for _, metric in ipairs(quota.metrics) do
    local cost = quota_cost(quota, metric, tokens)
    quota_add(quota, metric, cost)
    if who == 'live' then
      metric.live = metric.live + cost
    else
      metric.aside = math.max(metric.aside - cost * MICRO, 0)
    end
  end
end

-- quota_return takes back `cost` of a metric, charged at time `at`, if it is still in the ring. A negative one
-- is charged then.
local function quota_return(quota, metric, at, cost)
  local slot = math.floor(at / SLOT)
  if quota.slot - slot >= SLOTS or slot > quota.slot then return end
  local field = metric.name .. int(slot % SLOTS)
  cost = math.min(cost, tonumber(redis.call('HGET', quota.key, field) or 0))
  redis.call('HINCRBY', quota.key, field, int(0 - cost))
  metric.sum = metric.sum - cost
  if quota_paces(quota, metric) then quota_book(metric, cost) end
end

-- quota_booked returns what a grant of `tokens` at time `at` took of a metric.
local function quota_booked(quota, metric, at, tokens)
  if metric.name ~= 'o' then return quota_cost(quota, metric, tokens) end
  local took = redis.call('HGET', quota.key, 'oe' .. int(math.floor(at / SLOT) % SLOTS))
  return math.min(tonumber(took) or quota.expected, metric.limit)
end

-- quota_refund takes back what was charged at time `at` for an unused grant.
local function quota_refund(quota, at, tokens)
  for _, metric in ipairs(quota.metrics) do
    quota_return(quota, metric, at, quota_booked(quota, metric, at, tokens))
  end
end

-- quota_correct replaces the tokens charged at time `at` by those used, which the provider counts
-- now, or at that time if it is input alone.
local function quota_correct(quota, at, tokens, how)
  local used, output = string.match(how, '^(%d+),?(%d*)$')
  used, output = used + 0, tonumber(output)
  for _, metric in ipairs(quota.metrics) do
    if metric.name ~= 'r' then quota_return(quota, metric, at, quota_booked(quota, metric, at, tokens)) end
    if metric.name == 't' and output then
      quota_return(quota, metric, at, -used)
    elseif metric.name ~= 'r' then
      quota_add(quota, metric, output or used)
    end
  end
  if output and output > 0 then quota.seen = math.ceil((quota.mean or output) * 15 / 16 + output / 16) end
end

-- quota_stepped writes what a step of the clock has changed, except blk.
local function quota_stepped(quota, put)
  put('off', int(quota.off))
  if not quota.gap then return end
  put('gap', int(quota.now))
  if quota.since > 0 then put('fa', int(quota.since)) end
end

-- quota_close writes the state back. Learned quotas survive a week without use.
local function quota_close(quota)
  local set, text = {}, quota.text
  local function put(field, value)
    set[#set + 1] = field
    set[#set + 1] = value
  end
  if quota.stepped then quota_stepped(quota, put) end
  if quota.now < quota.blk or quota.gap then put('blk', int(math.max(quota.blk, 0))) end
  local one, try = quota.one, quota.try
  if quota.past then redis.call('HDEL', quota.key, 'mb') end
  if one then
    local now_text = int(math.max(one.till, 0)) .. (one.own and ' 1 ' or ' 0 ') .. one.code .. ' ' .. one.name
    if now_text ~= one.text then put('mb', now_text) end
  end
  if try then
    local now_text = try.id .. ' ' .. int(try.at) .. ' ' .. try.scope
    if now_text ~= try.text then put('try', now_text) end
  end
  if quota.till then
    put('bk', int(quota.till))
    put('bs', int(quota.share))
    put('bt', int(quota.head))
  end
  if quota.reserve then put('res', quota.reserve) end
  local slot = int(quota.slot % SLOTS)
  text[1], text[2] = int(quota.now), int(quota.slot)
  for _, metric in ipairs(quota.metrics) do
    if metric.added > 0 then redis.call('HINCRBY', quota.key, metric.name .. slot, int(metric.added)) end
    if metric.drawn ~= 0 then redis.call('HINCRBY', quota.key, metric.name .. 'd' .. slot, int(metric.drawn)) end
    if metric.name == 'o' and metric.added > 0 then put('oe' .. slot, int(quota.expected)) end
    local at = metric.at
    text[at] = int(metric.sum)
    if metric.pace then
      text[at + 1], text[at + 2] = int(metric.level), int(metric.draw + metric.drawn)
      text[at + 3], text[at + 4] = int(metric.aside), int(metric.live)
    end
  end
  for k = 3, 16 do text[k] = text[k] or '' end
  put('_', table.concat(text, ',', 1, 16))
  if quota.output then put('out', table.concat(text, ',', 17, 21)) end
  if quota.seen then put('mean', int(quota.seen)) end
  redis.call('HSET', quota.key, unpack(set))
  local learned = quota.learned.r or quota.learned.t or quota.learned.o or quota.since > 0
  local blocked = math.ceil(math.max(math.max(quota.blk, one and one.till or 0) - quota.now, 0) / 1000)
  redis.call('PEXPIRE', quota.key, int((learned and 604800000 or QUOTA_LIFE) + blocked))
end

-- quota_settle ends a grant of `tokens` at time `at`. how is 'unused' (all of it is returned),
-- 'booked' (all of it counts), or the tokens used, "input,output" if they count apart. The limits start at ARGV
-- `limits_at`.
local function quota_settle(key, given, limits_at, how, at, tokens)
  if how == 'booked' then return end
  local quota = quota_open(key, given, quota_limits(limits_at))
  if how == 'unused' then quota_refund(quota, at, tokens) else quota_correct(quota, at, tokens, how) end
  quota_close(quota)
end

-- slots_open removes dead slots and counts the open ones. Lost slots of jobs are restored from
-- their claims.
local function slots_open(key, claims, now)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', int(now))
  local open = redis.call('ZCARD', key)
  if open < redis.call('ZCARD', claims) then
    open = redis.call('ZUNIONSTORE', key, 2, key, claims, 'AGGREGATE', 'MAX')
    redis.call('PEXPIRE', key, 3600000)
  end
  return open
end
