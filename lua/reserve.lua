-- Library: quota for a waiting job that is larger than the bucket. Needs time.lua, quota.lua.
--
-- Such a job never finds room by waiting: before the ring has room for it, others take
-- what flows in. So acquire reserves quota for one of them, the first it cannot pick, and
-- tries the jobs behind it, which run where they do not delay it:
--
-- - Its credit grows as the share of the waiting classes flows in. One window before the
--   credit is its size, the reservation closes: calls and other jobs then get together
--   what it leaves of a minute, spread over it (quota_reserved), and at the end of that
--   the ring has room. So it waits for size / share of the quota, and for a minute.
-- - Jobs that overtake it may take as much as it (over). Then no job is picked before it,
--   which is soon where jobs are all there is. Where live calls keep the quota in use that
--   would be in vain, and jobs go on. When the reservation closes they may take as much again.
--
-- The text is "id tokens credit over mode from used seen": credit in millionths, from when
-- the mode is and what was used since in CLOSING and STRICT, seen when acquire last
-- could not pick it. What is not seen for a window is forgotten; another job that
-- takes its place before has its credit.

-- reserve_now brings the reservation up to now. Share is that of the waiting classes, per
-- mille, live what calls took since acquire looked last.
local function reserve_now(q, share, live)
  local r, m = q.res, q.metrics[#q.metrics]
  if not r then return end
  local unseen = q.now - r.seen
  if m.name ~= 't' or m.limit == math.huge or r.tokens > m.limit or unseen > WINDOW then
    q.res, q.reserve = nil, ''
    return
  end
  local part = m.pace * MICRO * share / 1000 * math.min(q.factor, 1000) / 1000 -- in a window
  r.credit = math.min(r.credit + math.floor(math.min(unseen, HELD) * (part / WINDOW)), r.tokens * MICRO)
  r.used = r.used + live
  local mode = r.mode
  if mode < CLOSING and r.credit + part >= r.tokens * MICRO then
    mode = CLOSING
  elseif mode == OPEN and r.over >= r.tokens then
    mode = STRICT
  elseif mode == STRICT and (r.used > m.limit - r.tokens or q.now - r.from > WINDOW) then
    mode = VAIN
  end
  if mode ~= r.mode then
    if mode == CLOSING then r.over = 0 end
    r.mode, r.from, r.used = mode, q.now, 0
  end
end

-- reserve_refused notes that a job was not picked; it reports whether those behind it may
-- be tried.
local function reserve_refused(q, id, tokens, why)
  local r, m = q.res, q.metrics[#q.metrics]
  if why ~= 'tpm' then
    if r then r.seen = q.now end
    return false
  end
  local large = math.min(tokens, m.limit) * MICRO > m.cap
  if large and (not r or r.id ~= id and q.now - r.seen > HELD) then
    local credit = r and math.min(r.credit, tokens * MICRO) or 0
    q.res = { id = id, tokens = math.min(tokens, m.limit), credit = credit, over = 0, mode = OPEN, from = 0, used = 0 }
  end
  if q.res and q.res.id == id then
    q.res.seen = q.now
  elseif not large and not q.small then
    q.small = tokens
  end
  return q.res ~= nil
end

-- reserve_picked notes that a job was picked.
local function reserve_picked(q, id, tokens)
  local r = q.res
  if not r then return end
  if r.id == id then
    q.res, q.reserve = nil, ''
  else
    r.over, r.used = r.over + tokens, r.used + tokens
  end
end

-- reserve_text leaves the reservation to quota_close.
local function reserve_text(q)
  local r = q.res
  if not r then return end
  q.reserve = table.concat({ r.id, int(r.tokens), int(r.credit), int(r.over), int(r.mode), int(r.from), int(r.used), int(r.seen) }, ' ')
end
