-- Part of shape_of: the shape of kind d (needs shapes).
--
-- Number of different subjects that have made a call within a sliding window (p1 = window in us), for
-- brakes. ZSET: the numbers of subjects by the time of their last call. A call charges the number of
-- its subject; no change takes it back. A subject leaves as its window ends. A member of negative score
-- has the lead, as in shape_log.

local function read(key, p1, _, now)
  local lead, last = call('ZSCORE', key, '!lead'), call('ZREVRANGE', key, '0', '0', 'WITHSCORES')[2]
  lead, last = lead and -1 - lead or 0, (last or 0) + 0
  local back = last - now - lead > BACK_US
  if back then lead = last - now end
  now = now + lead
  local used = call('ZCOUNT', key, '(' .. num(now - p1), '+inf')
  return { used = used, held = 0, now = now, from = now - p1, key = key, lead = lead, late = back and used > 0 }
end

local function charge(st, n, id, nth, held)
  local member = num(n)
  st.enter = st.enter or {}
  if not st.enter[member] then
    local last = call('ZSCORE', st.key, member)
    if not last or last - st.from <= 0 then st.used = st.used + 1 end
    st.enter[member] = true
  end
  return '0'
end

local function text_of(st)
  return fmt('%d,0', st.used)
end

local function write(st, key, p1)
  if st.enter or st.late then
    call('ZREMRANGEBYSCORE', key, '0', num(st.from))
    for member in pairs(st.enter or {}) do call('ZADD', key, num(st.now), member) end
    if st.lead > 0 then call('ZADD', key, num(-1 - st.lead), '!lead') end
    call('PEXPIRE', key, num(floor(p1 / 1000) + GRACE_MS))
  end
end

local function change()
  return 0
end

local function rest(s)
  function s.look() return 0, 0 end

  function s.frees() return '' end

  function s.forget() end
end

return { read = read, charge = charge, change = change, text = text_of, write = write, rest = rest, in_memory = true }
