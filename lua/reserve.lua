-- Library: quota for a waiting job that is larger than the bucket. Needs time.lua, quota.lua.
--
-- Such a job never fits just by waiting: before the ring has capacity for it, others take the
-- inflow. Therefore acquire reserves quota for one of them, the first it cannot pick, and tries the
-- jobs behind it, which run if they do not delay it:
--
-- - Its credit grows as the share of the waiting classes flows in. One window before the
--   credit reaches its size, the reservation closes: calls and other jobs together then get
--   what it leaves of a minute, spread over it (quota_reserved), and at the end of that
--   the ring has capacity. So it waits for size / share of the quota, plus a minute.
-- - Jobs that overtake it may take as much as its size (over). Then no job is picked before it,
--   which is soon if there are only jobs. If live calls keep the quota in use, waiting
--   would be in vain, and jobs continue. When the reservation closes they may take as much again.
--
-- The text is "id tokens credit over mode from used seen": credit in millionths, since when the
-- mode applies and what was used since in CLOSING and STRICT, seen when acquire last could not pick
-- it. A reservation that is not seen for a window is dropped; another job that takes its place
-- before that inherits its credit.

-- reserve_now brings the reservation up to now. share is that of the waiting classes, per mille;
-- live is what calls took since the last acquire.
local function reserve_now(quota, share, live)
  local res, metric = quota.res, quota.tokens
  if not res then return end
  local unseen = quota.now - res.seen
  if not metric or metric.limit == math.huge or res.tokens > metric.limit or unseen > WINDOW then
    quota.res, quota.reserve = nil, ''
    return
  end
  local part = metric.pace * MICRO * share / 1000 * math.min(quota.factor, 1000) / 1000 -- per window
  res.credit = math.min(res.credit + math.floor(math.min(unseen, HELD) * (part / WINDOW)), res.tokens * MICRO)
  res.used = res.used + live
  local mode = res.mode
  if mode < CLOSING and res.credit + part >= res.tokens * MICRO then
    mode = CLOSING
  elseif mode == OPEN and res.over >= res.tokens then
    mode = STRICT
  elseif mode == STRICT and (res.used > metric.limit - res.tokens or quota.now - res.from > WINDOW) then
    mode = VAIN
  end
  if mode ~= res.mode then
    if mode == CLOSING then res.over = 0 end
    res.mode = mode
    res.from = quota.now
    res.used = 0
  end
end

-- reserve_refused records that a job was not picked; it reports whether those behind it may be
-- tried.
local function reserve_refused(quota, id, tokens, why)
  local res, metric = quota.res, quota.tokens
  if not metric or why ~= metric.why then
    if res then res.seen = quota.now end
    return false
  end
  local large = math.min(tokens, metric.limit) * MICRO > metric.cap
  if large and (not res or res.id ~= id and quota.now - res.seen > HELD) then
    local credit = res and math.min(res.credit, tokens * MICRO) or 0
    quota.res = { id = id, tokens = math.min(tokens, metric.limit), credit = credit, over = 0,
      mode = OPEN, from = 0, used = 0 }
  end
  if quota.res and quota.res.id == id then
    quota.res.seen = quota.now
  elseif not large and not quota.small then
    quota.small = tokens
  end
  return quota.res ~= nil
end

-- reserve_picked records that a job was picked.
local function reserve_picked(quota, id, tokens)
  local res = quota.res
  if not res then return end
  if res.id == id then
    quota.res, quota.reserve = nil, ''
  else
    res.over, res.used = res.over + tokens, res.used + tokens
  end
end

-- reserve_text stores the reservation for quota_close.
local function reserve_text(quota)
  local res = quota.res
  if not res then return end
  quota.reserve = table.concat({ res.id, int(res.tokens), int(res.credit), int(res.over),
    int(res.mode), int(res.from), int(res.used), int(res.seen) }, ' ')
end
