-- Part of shape_of: the shape of kind x (needs shapes).
--
-- Exact window (p1 = width in us). ZSET: one member "f:amount:id/nth" per part
-- scored by its time (f = h while held, s when settled), and members whose
-- negative scores carry the sums: -1-used, -1-held, -1-last time, and -1-lead when
-- the clock went back.
--
-- A run removes at most 500 parts that have left the window. If there are more, st.partial is set:
-- used and held still count those. Scripts that have to be exact then write the state, reply
-- "stale", and are run again.

local function member(flag, n, id, nth)
  return flag .. ':' .. num(n) .. ':' .. id .. '/' .. nth
end

local function read(key, p1, _, now)
  local st = { used = 0, held = 0, now = now, rem = {}, add = {} }
  local got = call('ZMSCORE', key, '!used', '!held', '!time', '!lead')
  if got[1] then
    st.used, st.held = -1 - tonumber(got[1]), -1 - tonumber(got[2])
    local last, lead = -1 - tonumber(got[3]), got[4] and -1 - tonumber(got[4]) or 0
    local back = last - now - lead > BACK_US
    if back then lead = last - now end
    st.now = max(now + lead, last)
    st.late = back or st.now - last > SEEN_US
    if lead > 0 then st.lead = lead end
    st.cut = st.now - p1
    st.sums = got[4] and 4 or 3
    local gone = call('ZRANGEBYSCORE', key, '0', num(st.cut), 'LIMIT', '0', '500')
    st.stale = #gone
    if st.stale == 500 then
      local newest = call('ZREVRANGE', key, '0', '0', 'WITHSCORES')
      if newest[2] - st.cut <= 0 then st.empty = true else st.partial = true end
    end
    if st.empty then
      st.used, st.held = 0, 0
    else
      for i = 1, st.stale do
        local f, v = gone[i]:match('^(%a):(%d+):')
        st.used = st.used - v
        if f == 'h' then st.held = st.held - v end
      end
    end
    st.late = st.late and st.used > 0
  end
  return st
end

local function charge(st, n, id, nth, held)
  local place = num(st.now)
  if n > 0 then
    local i = #st.add
    st.add[i + 1], st.add[i + 2] = place, member(held and 'h' or 's', n, id, nth)
  end
  st.used = st.used + n
  if held then st.held = st.held + n end
  return place
end

local function text_of(st)
  return fmt('%d,%d', st.used, st.held)
end

local function write(st, key, p1)
  if st.empty then
    call('UNLINK', key)
  elseif (st.stale or 0) > 0 then
    call('ZREMRANGEBYRANK', key, num(st.sums), num(st.sums - 1 + st.stale)) -- the sums come first
  end
  if #st.rem > 0 then call('ZREM', key, unpack(st.rem)) end
  call('ZADD', key, num(-1 - st.used), '!used', num(-1 - st.held), '!held',
    num(-1 - st.now), '!time', unpack(st.add))
  if st.lead then call('ZADD', key, num(-1 - st.lead), '!lead') end
  call('PEXPIRE', key, num(floor(p1 / 1000) + GRACE_MS))
end

local function change(st, key, place, from, to, open, id, nth)
  local back = 0
  if from > 0 and st.cut and place - st.cut > 0 then
    local was = member(open and 'h' or 's', from, id, nth)
    if call('ZSCORE', key, was) then
      st.rem[#st.rem + 1] = was
      if to > 0 then
        local i = #st.add
        st.add[i + 1], st.add[i + 2] = place, member('s', to, id, nth)
      end
      back = from - to
      st.used = st.used - back
      if open then st.held = st.held - from end
    end
  end
  return back
end

local function rest(s)
  -- Visits at most 1,000 entries; beyond them frees_at is too early, never too late.
  function s.look(st, key, width, excess)
    local resets, frees, gone = 0, 0, 0
    if st.used == 0 then return resets, frees end
    width = width - (st.lead or 0) -- converts a part's time to the clock's time at which it leaves
    local last = call('ZREVRANGE', key, '0', '0', 'WITHSCORES')
    resets = tonumber(last[2]) + width
    local after = '(' .. num(st.cut or 0)
    for from = 0, 900, 100 do
      if gone >= excess then break end
      local page = call('ZRANGEBYSCORE', key, after, '+inf', 'WITHSCORES', 'LIMIT', num(from), '100')
      for i = 1, #page, 2 do
        if gone >= excess then break end
        gone = gone + page[i]:match('^%a:(%d+):')
        frees = tonumber(page[i + 1]) + width
      end
      if #page < 200 then break end
    end
    return resets, frees
  end

  -- Lists at most 1,000 parts, the last with all that follow.
  function s.frees(st, key, width)
    if st.used == 0 then return '' end
    local out, left = {}, st.used
    local page = call('ZRANGEBYSCORE', key, '(' .. num(st.cut or 0), '+inf', 'WITHSCORES', 'LIMIT', '0', '1000')
    for i = 1, #page, 2 do
      local flag, n = page[i]:match('^(%a):(%d+):')
      n = i == 1999 and left or n + 0
      left = left - n
      out[#out + 1] = fmt(',%d,%d,%d', page[i + 1] + width - (st.lead or 0), n, flag == 'h' and n or 0)
    end
    return table.concat(out)
  end

  function s.forget(st, key)
    if not st.cut then return end
    local all = call('ZRANGEBYSCORE', key, '(' .. num(st.cut), '+inf')
    for i = 1, #all do
      if all[i]:sub(1, 2) == 's:' then call('ZREM', key, all[i]) end
    end
    st.used = st.held
  end
end

return { read = read, charge = charge, change = change, text = text_of, write = write, rest = rest }
