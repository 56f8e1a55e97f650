-- Part of shape_of: the shape of kind c (needs shapes).
--
-- Calendar period (p1 = "b0,b1,b2,b3", period boundaries in us around Go's clock).
-- STRING "used,held,start,end"; a new period starts at zero.

local function read(key, p1, _, now)
  local st
  local text = call('GET', key)
  if text then
    local used, held, from, to = text:match('^([^,]+),([^,]+),([^,]+),(.+)$')
    if now < to + 0 then
      st = { used = used + 0, held = held + 0, from = from, to = to + 0, now = max(now, from + 0) }
    end
  end
  if not st then
    local from, to
    for b in p1:gmatch('%d+') do
      if b + 0 > now then
        to = b + 0
        break
      end
      from = b
    end
    if from and to then st = { used = 0, held = 0, from = from, to = to, now = now } end
  end
  return st
end

local function charge(st, n, id, nth, held)
  st.used = st.used + n
  if held then st.held = st.held + n end
  return st.from
end

local function text_of(st)
  return fmt('%d,%d,%s,%d', st.used, st.held, st.from, st.to)
end

local function write(st, key, _, _, text)
  text = text or text_of(st)
  call('SET', key, text, 'PX', num(floor((st.to - st.now) / 1000) + GRACE_MS))
end

local function change(st, key, place, from, to, open, id, nth)
  local back = 0
  if place == st.from then
    back = min(from - to, st.used)
    st.used = st.used - back
    if open then st.held = max(st.held - from, 0) end
  end
  return back
end

local function rest(s)
  function s.merge(st, place, n)
    return place == st.from and s.charge(st, n, nil, nil, true)
  end

  function s.look(st)
    return st.to, st.to
  end

  function s.frees(st)
    return ',' .. num(st.to)
  end

  function s.forget(st)
    st.used = st.held
  end
end

return { read = read, charge = charge, change = change, text = text_of, write = write, rest = rest, in_memory = true }
