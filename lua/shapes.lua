-- Library: the limit shapes (needs time.lua). One key holds the state of one
-- limit for one subject. A shape is a table of functions over a state `st`:
--
--   read(key, p1, p2, now)   state at `now`, nothing written; nil when Go's
--                            calendar does not reach `now`
--   charge(st, n, id, nth, held)
--                            adds n, returns its place; held: part of an open hold
--   change(st, place, from, to, open, id, nth)
--                            the part at place becomes `to` <= from and stops being
--                            held when open; returns what was given back, 0 when
--                            the place has left the limit
--   write(st)                stores the state
--   merge(st, place, n)      adds n held to a part at its place when that is where a
--                            charge would go; returns the new place. Optional.
--   look(st, excess)         resets_at, frees_at: the instants when nothing is left
--                            and when `excess` has gone (the bucket returns its
--                            fraction and its clock instead; Go does the division);
--                            excess nil: just charged, nothing to wait for
--   forget(st)               drops what was charged, keeps what is held
--
-- st.used is all that counts now, st.held the open holds in it, st.now the
-- time used: a state never goes back in time, it waits for the clock.

local call, floor, max, min, fmt = redis.call, math.floor, math.max, math.min, string.format
local shape = {}

local GRACE_MS = 60000 -- added to every lifetime of a key
local LONG_MS = 34560000000 -- 400 days: for what does not empty by itself

-- Sliding window as a ring of 61 slots (p1 = slot width in us). The oldest slot
-- counts whole, so the ring never admits too much. HASH: `_` = "used,held,slot"
-- and the fields 0..60 = "charged,held" of the slot number modulo 61.
function shape.w()
  local ring = {}

  function ring.read(key, slot, _, now)
    slot = tonumber(slot)
    local n = floor(now / slot)
    local st = { key = key, slot = slot, used = 0, held = 0, now = now, cur = n, new = true, v = {}, h = {} }
    local got = call('HMGET', key, '_', n % 61)
    if not got[1] then
      ring.put(st, n, nil)
      return st
    end
    local used, held, cur = got[1]:match('^(%d+),(%d+),(%d+)$')
    cur = tonumber(cur)
    if n - cur > 60 then
      st.wipe = true
      ring.put(st, n, nil)
      return st
    end
    st.used, st.held = tonumber(used), tonumber(held)
    if n > cur then
      ring.advance(st, cur, n)
      return st
    end
    st.cur, st.new = cur, false
    if n == cur then ring.put(st, n, got[2]) end
    return st
  end

  -- put takes slot i from its text: charged to v, held to h, both by i % 61.
  function ring.put(st, i, text)
    local v, h
    if text then v, h = text:match('^(%d+),(%d+)$') end
    i = i % 61
    st.v[i], st.h[i] = tonumber(v or 0), tonumber(h or 0)
    return i
  end

  -- load returns the index in v and h of slot i, which is in the window.
  function ring.load(st, i)
    if st.v[i % 61] then return i % 61 end
    return ring.put(st, i, call('HGET', st.key, i % 61))
  end

  -- advance empties the slots that the new ones overwrite.
  function ring.advance(st, cur, n)
    local fields = {}
    for i = cur + 1, n do fields[#fields + 1] = i % 61 end
    local got = call('HMGET', st.key, unpack(fields))
    for i = cur + 1, n do
      local k = ring.put(st, i, got[i - cur])
      st.used, st.held = st.used - st.v[k], st.held - st.h[k]
      st.v[k], st.h[k] = 0, 0
    end
  end

  function ring.charge(st, n, _, _, held)
    local k = ring.load(st, st.cur)
    st.v[k], st.used = st.v[k] + n, st.used + n
    if held then st.h[k], st.held = st.h[k] + n, st.held + n end
    return int(st.cur)
  end

  function ring.merge(st, place, n)
    return tonumber(place) == st.cur and ring.charge(st, n, nil, nil, true)
  end

  function ring.change(st, place, from, to, open)
    local i = tonumber(place)
    if i > st.cur or st.cur - i > 60 or st.wipe then return 0 end
    local k = ring.load(st, i)
    local back = min(from - to, st.v[k])
    st.v[k], st.used = st.v[k] - back, st.used - back
    if open then
      local h = min(from, st.h[k])
      st.h[k], st.held = st.h[k] - h, st.held - h
    end
    return back
  end

  function ring.write(st)
    local args = { '_', fmt('%.0f,%.0f,%.0f', st.used, st.held, st.cur) }
    for k, v in pairs(st.v) do
      args[#args + 1] = k
      args[#args + 1] = fmt('%.0f,%.0f', v, st.h[k])
    end
    if st.wipe then call('DEL', st.key) end
    call('HSET', st.key, unpack(args))
    if st.new then call('PEXPIRE', st.key, floor(st.slot * 61 / 1000) + GRACE_MS) end
  end

  function ring.look(st, excess)
    if not excess then return (st.cur + 61) * st.slot, st.now end
    local resets, frees = st.now, st.now
    if st.used == 0 then return resets, frees end
    ring.load_all(st)
    local gone = 0
    for i = st.cur - 60, st.cur do
      local v = st.v[i % 61]
      if v > 0 then
        resets = (i + 61) * st.slot
        if gone < excess then frees = resets end
        gone = gone + v
      end
    end
    return resets, frees
  end

  function ring.load_all(st)
    local fields = {}
    for k = 0, 60 do fields[k + 1] = k end
    local got = call('HMGET', st.key, unpack(fields))
    for k = 0, 60 do
      if not st.v[k] then ring.put(st, k, not st.wipe and got[k + 1]) end
    end
  end

  function ring.forget(st)
    ring.load_all(st)
    for k = 0, 60 do st.v[k] = st.h[k] end
    st.used = st.held
  end

  return ring
end

-- Exact window (p1 = width in us). ZSET: one member "f:amount:id/nth" per part
-- scored by its time (f = h while held, s when settled), and three members whose
-- negative scores carry the sums: -1-used, -1-held, -1-last time.
function shape.x()
  local log = {}

  function log.read(key, width, _, now)
    local got = call('ZMSCORE', key, '!used', '!held', '!time')
    local st = { key = key, width = tonumber(width), used = 0, held = 0, now = now, rem = {}, add = {} }
    if not got[1] then return st end
    st.used, st.held = -1 - tonumber(got[1]), -1 - tonumber(got[2])
    st.now = max(now, -1 - tonumber(got[3]))
    st.cut = st.now - st.width
    local from = 0
    repeat
      local gone = call('ZRANGEBYSCORE', key, 0, fmt('%.0f', st.cut), 'LIMIT', from, 1000)
      for i = 1, #gone do
        local f, v = gone[i]:match('^(%a):(%d+):')
        st.used = st.used - v
        if f == 'h' then st.held = st.held - v end
      end
      from = from + #gone
    until #gone < 1000
    st.stale = from
    return st
  end

  local function member(flag, n, id, nth)
    return fmt('%s:%.0f:%s/%s', flag, n, id, nth)
  end

  function log.charge(st, n, id, nth, held)
    if n > 0 then
      st.add[#st.add + 1] = fmt('%.0f', st.now)
      st.add[#st.add + 1] = member(held and 'h' or 's', n, id, nth)
    end
    st.used = st.used + n
    if held then st.held = st.held + n end
    return fmt('%.0f', st.now)
  end

  function log.change(st, place, from, to, open, id, nth)
    if from == 0 or not st.cut or tonumber(place) <= st.cut then return 0 end
    local was = member(open and 'h' or 's', from, id, nth)
    if not call('ZSCORE', st.key, was) then return 0 end
    st.rem[#st.rem + 1] = was
    if to > 0 then
      st.add[#st.add + 1] = place
      st.add[#st.add + 1] = member('s', to, id, nth)
    end
    st.used = st.used - (from - to)
    if open then st.held = st.held - from end
    return from - to
  end

  function log.write(st)
    if st.stale and st.stale > 0 then
      call('ZREMRANGEBYSCORE', st.key, 0, fmt('%.0f', st.cut))
    end
    if #st.rem > 0 then call('ZREM', st.key, unpack(st.rem)) end
    call('ZADD', st.key, fmt('%.0f', -1 - st.used), '!used', fmt('%.0f', -1 - st.held), '!held',
      fmt('%.0f', -1 - st.now), '!time', unpack(st.add))
    call('PEXPIRE', st.key, floor(st.width / 1000) + GRACE_MS)
  end

  -- Walks at most 1,000 entries; beyond them frees_at is too early, never too late.
  function log.look(st, excess)
    if not excess then return st.now + st.width, st.now end
    local resets, frees, gone = st.now, st.now, 0
    if st.used == 0 then return resets, frees end
    local last = call('ZREVRANGE', st.key, 0, 0, 'WITHSCORES')
    resets = tonumber(last[2]) + st.width
    local after = '(' .. fmt('%.0f', st.cut)
    for from = 0, 900, 100 do
      if gone >= excess then break end
      local page = call('ZRANGEBYSCORE', st.key, after, '+inf', 'WITHSCORES', 'LIMIT', from, 100)
      for i = 1, #page, 2 do
        if gone >= excess then break end
        gone = gone + page[i]:match('^%a:(%d+):')
        frees = tonumber(page[i + 1]) + st.width
      end
      if #page < 200 then break end
    end
    return resets, frees
  end

  function log.forget(st)
    if not st.cut then return end
    local all = call('ZRANGEBYSCORE', st.key, '(' .. fmt('%.0f', st.cut), '+inf')
    for i = 1, #all do
      if all[i]:sub(1, 2) == 's:' then call('ZREM', st.key, all[i]) end
    end
    st.used = st.held
  end

  return log
end

-- Token bucket (p1 units drain every p2 us, lowest terms). The state counts what
-- is used, not what is left, so that a new capacity keeps the usage, and debt is
-- used > capacity. STRING "used,fraction,time,held,busy,drained,given".
-- fraction/p2 of a unit has drained beyond used. Since `busy`, when the bucket
-- was last empty, `drained` has drained and `given` was given back.
--
-- What has drained cannot be given back: it has made room for others. A part's
-- place is "busy/end/drained" as of its charge, `end` the volume charged since
-- busy. First in, first out, what remains of a part is at least
--   end - drained - given   (all that was given back counted as ahead of it), and
--   amount - drained since  (nothing was ahead of it),
-- so the larger of the two can go back.
function shape.b()
  local bucket = {}

  -- Quotient and rest of (m * r + f) / p for m, r, f < p < 2^44.
  local function muldiv(m, r, f, p)
    local q, rest, base = 0, 0, 1099511627776
    while base >= 1 do
      local digit = floor(m / base)
      m = m - digit * base
      local x = rest * 256 + digit * r
      local k = floor(x / p)
      q, rest, base = q * 256 + k, x - k * p, base / 256
    end
    local x = rest + f
    local k = floor(x / p)
    return q + k, x - k * p
  end

  -- What drains in e us, exactly, and the new fraction; nil: all of `used`.
  local function drain(e, r, p, f, used)
    local x = e * r + f
    if x < 9007199254740992 then
      local c = floor(x / p)
      return c, x - c * p
    end
    if x > (used + 1) * p * 1.000001 then return nil end
    local q, n = floor(r / p), floor(e / p)
    local m, s = e - n * p, r - q * p
    local c, rest = muldiv(m, s, f, p)
    return e * q + n * s + c, rest
  end

  function bucket.read(key, r, p, now)
    r, p = tonumber(r), tonumber(p)
    local st = { key = key, r = r, p = p, used = 0, f = 0, now = now, held = 0, busy = now, drained = 0, given = 0 }
    local text = call('GET', key)
    if not text then return st end
    local used, f, t, held, busy, drained, given =
      text:match('^(%d+),(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)$')
    used, f, t = tonumber(used), tonumber(f), tonumber(t)
    st.now = max(now, t)
    if used == 0 then st.busy = st.now return st end
    if f >= p then f = 0 end
    local c, rest = 0, f
    if r > 0 and st.now > t then c, rest = drain(st.now - t, r, p, f, used) end
    drained, given = tonumber(drained), tonumber(given)
    if not c or c >= used or used + drained + given > 4503599627370496 then
      if c and c < used then st.used, st.f = used - c, rest end
      st.busy = st.now
      return st
    end
    st.used, st.f, st.held = used - c, rest, tonumber(held)
    st.busy, st.drained, st.given = tonumber(busy), drained + c, given
    return st
  end

  function bucket.charge(st, n, _, _, held)
    st.used = st.used + n
    if held then st.held = st.held + n end
    return fmt('%.0f/%.0f/%.0f', st.busy, st.used + st.drained + st.given, st.drained)
  end

  -- The added volume counts as if it stood right behind the part: not later than
  -- it does.
  function bucket.merge(st, place, n)
    local busy, fin, drained = place:match('^(%d+)/(%d+)/(%d+)$')
    if tonumber(busy) ~= st.busy then return nil end
    bucket.charge(st, n, nil, nil, true)
    return fmt('%s/%.0f/%s', busy, fin + n, drained)
  end

  function bucket.change(st, place, from, to, open)
    local busy, fin, drained = place:match('^(%d+)/(%d+)/(%d+)$')
    if tonumber(busy) ~= st.busy then return 0 end
    if open then st.held = max(st.held - from, 0) end
    local left = max(fin - st.drained - st.given, from - (st.drained - drained))
    local back = max(min(from - to, left, st.used), 0)
    st.used, st.given = st.used - back, st.given + back
    if st.used == 0 then st.f = 0 end
    return back
  end

  function bucket.write(st)
    local ms = LONG_MS
    if st.r > 0 then ms = min(ms, floor(st.used / st.r * st.p / 1000) + GRACE_MS) end
    call('SET', st.key, fmt('%.0f,%.0f,%.0f,%.0f,%.0f,%.0f,%.0f', st.used, st.f, st.now, st.held,
      st.busy, st.drained, st.given), 'PX', fmt('%.0f', ms))
  end

  function bucket.look(st)
    return st.f, st.now
  end

  function bucket.forget(st)
    local keep = min(st.used, st.held)
    st.given, st.used = st.given + st.used - keep, keep
    if keep == 0 then st.f = 0 end
  end

  return bucket
end

-- Calendar period (p1 = "b0,b1,b2,b3", period boundaries in us around Go's clock).
-- STRING "start,end,used,held"; a new period starts at zero.
function shape.c()
  local period = {}

  function period.read(key, bounds, _, now)
    local st = { key = key, used = 0, held = 0, now = now }
    local text = call('GET', key)
    if text then
      local from, to, used, held = text:match('^(%d+),(%d+),(%d+),(%d+)$')
      if now < tonumber(to) then
        st.from, st.to, st.used, st.held = tonumber(from), tonumber(to), tonumber(used), tonumber(held)
        st.now = max(now, st.from)
        return st
      end
    end
    for b in bounds:gmatch('%d+') do
      b = tonumber(b)
      if b > now then
        st.to = b
        break
      end
      st.from = b
    end
    if st.from and st.to then return st end
    return nil
  end

  function period.charge(st, n, _, _, held)
    st.used = st.used + n
    if held then st.held = st.held + n end
    return fmt('%.0f', st.from)
  end

  function period.merge(st, place, n)
    return tonumber(place) == st.from and period.charge(st, n, nil, nil, true)
  end

  function period.change(st, place, from, to, open)
    if tonumber(place) ~= st.from then return 0 end
    local back = min(from - to, st.used)
    st.used = st.used - back
    if open then st.held = max(st.held - from, 0) end
    return back
  end

  function period.write(st)
    call('SET', st.key, fmt('%.0f,%.0f,%.0f,%.0f', st.from, st.to, st.used, st.held),
      'PX', fmt('%.0f', floor((st.to - st.now) / 1000) + GRACE_MS))
  end

  function period.look(st)
    return st.to, st.to
  end

  function period.forget(st)
    st.used = st.held
  end

  return period
end

-- Concurrency (p1 = lease in us). ZSET: hold ids by the end of their lease.
function shape.n()
  local open_holds = {}

  function open_holds.read(key, lease, _, now)
    local n = call('ZCOUNT', key, fmt('(%.0f', now), '+inf')
    return { key = key, lease = tonumber(lease), used = n, held = n, now = now }
  end

  function open_holds.charge(st, _, id)
    st.used, st.held, st.enter = st.used + 1, st.held + 1, id
    return '0'
  end

  function open_holds.change(st, _, _, _, _, id)
    st.leave = id
    return 0
  end

  function open_holds.write(st)
    if st.leave then call('ZREM', st.key, st.leave) end
    if not st.enter then return end
    call('ZREMRANGEBYSCORE', st.key, '-inf', fmt('%.0f', st.now))
    call('ZADD', st.key, fmt('%.0f', st.now + st.lease), st.enter)
    call('PEXPIRE', st.key, floor(st.lease / 1000) + GRACE_MS)
  end

  function open_holds.look(st, excess)
    if not excess then return st.now + st.lease, st.now end
    local one = call('ZRANGEBYSCORE', st.key, fmt('(%.0f', st.now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    local last = call('ZREVRANGE', st.key, 0, 0, 'WITHSCORES')
    return max(tonumber(last[2] or st.now), st.now), tonumber(one[2] or st.now)
  end

  function open_holds.forget() end

  return open_holds
end

-- shape_of returns the functions of a kind; only the kinds in use are built.
local built = {}
local function shape_of(kind)
  local s = built[kind]
  if not s then
    s = shape[kind]()
    built[kind] = s
  end
  return s
end
