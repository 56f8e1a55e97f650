-- Part of shape_of: the shape of kind w (needs shapes).
--
-- Sliding window as a ring of 61 slots (p1 = slot width in us). The oldest slot counts in full, so
-- the ring never admits too much. HASH: `_` = "used,held,slot,charged,held" with the newest slot's
-- number and amounts, and ",lead" in slots if the clock went back; fields 0..60 = "charged,held" of
-- the older slots by their number modulo 61. st.v and st.h have the older slots that were touched,
-- by field.

local function read(key, p1, _, now)
  local st
  local slot = floor(now / p1)
  local used, held, cur, cv, ch, lead, late
  local text = call('HGET', key, '_')
  if text then
    used, held, cur, cv, ch, lead = text:match('^([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),?(.*)$')
    cur = cur + 0
    if lead ~= '' then slot = slot + lead end
    if (cur - slot) * p1 > BACK_US then -- its newest slot ends late, so it frees late
      lead = num(cur - 1 - slot + (lead == '' and 0 or lead))
      slot = cur - 1
      late = true
    end
    late = late or (slot - cur) * p1 > SEEN_US
  end
  if not cur or slot - cur > 60 then
    st = { used = 0, held = 0, cur = slot, cv = 0, ch = 0, new = true, wipe = cur }
  else
    st = { used = used + 0, held = held + 0, cur = cur, cv = cv + 0, ch = ch + 0 }
    if slot > cur then -- it becomes the newest; the skipped ones are emptied
      local fields = {}
      for i = cur + 1, slot do fields[i - cur] = num(i % 61) end
      local got = call('HMGET', key, unpack(fields))
      st.v, st.h = {}, {}
      for i, k in ipairs(fields) do
        if got[i] then
          local v, h = got[i]:match('^([^,]+),(.+)$')
          st.used, st.held = st.used - v, st.held - h
        end
        st.v[k], st.h[k] = 0, 0
      end
      local k = num(cur % 61)
      st.v[k], st.h[k] = st.cv, st.ch
      st.cur, st.cv, st.ch, st.new = slot, 0, 0, true
    end
  end
  if lead and lead ~= '' then st.lead = lead end
  st.late = late and st.used > 0
  return st
end

local function charge(st, n, id, nth, held)
  st.cv, st.used = st.cv + n, st.used + n
  if held then st.ch, st.held = st.ch + n, st.held + n end
  return num(st.cur)
end

local function text_of(st)
  local text = fmt('%d,%d,%d,%d,%d', st.used, st.held, st.cur, st.cv, st.ch)
  if st.lead then text = text .. ',' .. st.lead end
  return text
end

local function write(st, key, p1, _, text)
  text = text or text_of(st)
  if st.wipe then call('DEL', key) end
  if st.v then
    local args, i = { '_', text }, 2
    for k, v in pairs(st.v) do
      args[i + 1], args[i + 2], i = k, fmt('%d,%d', v, st.h[k]), i + 2
    end
    call('HSET', key, unpack(args))
  else
    call('HSET', key, '_', text)
  end
  if st.new then call('PEXPIRE', key, num(floor(p1 * 61 / 1000) + GRACE_MS)) end
end

local function change(st, key, place, from, to, open, id, nth)
  local back = 0
  local i = place + 0
  if i <= st.cur and st.cur - i <= 60 and not st.wipe then
    local h
    if i == st.cur then
      back, h = min(from - to, st.cv), open and min(from, st.ch) or 0
      st.cv, st.ch = st.cv - back, st.ch - h
    else
      local k = num(i % 61)
      if not st.v then st.v, st.h = {}, {} end
      if not st.v[k] then
        local v, held
        local text = call('HGET', key, k)
        if text then v, held = text:match('^([^,]+),(.+)$') end
        st.v[k], st.h[k] = (v or 0) + 0, (held or 0) + 0
      end
      back, h = min(from - to, st.v[k]), open and min(from, st.h[k]) or 0
      st.v[k], st.h[k] = st.v[k] - back, st.h[k] - h
    end
    st.used, st.held = st.used - back, st.held - h
  end
  return back
end

local function rest(s)
  local function put(st, k, text)
    local v, h
    if text then v, h = text:match('^([^,]+),(.+)$') end
    st.v[k], st.h[k] = (v or 0) + 0, (h or 0) + 0
  end

  local function touch_all(st, key)
    local fields = {}
    for i = st.cur - 60, st.cur - 1 do fields[#fields + 1] = num(i % 61) end
    local got = call('HMGET', key, unpack(fields))
    if not st.v then st.v, st.h = {}, {} end
    for i, k in ipairs(fields) do
      if not st.v[k] then put(st, k, not st.wipe and got[i]) end
    end
  end

  function s.merge(st, place, n)
    return tonumber(place) == st.cur and s.charge(st, n, nil, nil, true)
  end

  function s.look(st, key, slot, excess)
    local resets, frees, gone = 0, 0, 0
    if st.used == 0 then return resets, frees end
    touch_all(st, key)
    for i = st.cur - 60, st.cur do
      local v = i == st.cur and st.cv or st.v[num(i % 61)]
      if v > 0 then
        resets = (i + 61 - (st.lead or 0)) * slot
        if gone < excess then frees = resets end
        gone = gone + v
      end
    end
    return resets, frees
  end

  function s.frees(st, key, slot)
    local out = ''
    touch_all(st, key)
    for i = st.cur - 60, st.cur do
      local v, h = st.cv, st.ch
      if i < st.cur then v, h = st.v[num(i % 61)], st.h[num(i % 61)] end
      if v > 0 then out = out .. fmt(',%d,%d,%d', (i + 61 - (st.lead or 0)) * slot, v, h) end
    end
    return out
  end

  function s.forget(st, key)
    touch_all(st, key)
    for k in pairs(st.v) do st.v[k] = st.h[k] end
    st.cv = st.ch
    st.used = st.held
  end
end

return { read = read, charge = charge, change = change, text = text_of, write = write, rest = rest, in_memory = true }
