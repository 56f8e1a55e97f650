-- Library: the limit shapes (needs time.lua). One key holds the state of one
-- limit for one subject. A shape is a table of functions over a state `st`:
--
--   read(key, p1, p2, now)   state at `now`, nothing written; nil when Go's
--                            calendar does not reach `now`
--   charge(st, n, id, nth, held)
--                            adds n, returns its place; held: part of an open hold
--   merge(st, place, n)      adds n held to a part at its place when that is where a
--                            charge would go; returns the new place. Optional.
--   change(st, place, from, to, open, id, nth)
--                            the part at place becomes `to` <= from and stops being
--                            held when open; returns what was given back, 0 when
--                            the place has left the limit
--   write(st)                stores the state
--   look(st, excess)         resets_at, frees_at: the instants when nothing is left
--                            and when `excess` has gone (the bucket returns its
--                            fraction and its clock instead; Go does the division)
--   forget(st)               drops what was charged, keeps what is held
--
-- st.used is all that counts now, st.held the open holds in it, st.now the
-- time used: a state never goes back in time, it waits for the clock.
--
-- These run inside every call, and printing numbers is most of their time: '%d'
-- is three times as fast as '%.0f' and as exact (hold.lua checks that the server
-- has 64 bits), and a number given to redis.call is printed with '%.17g', slower
-- than both. Numbers stay well below 2^53.

local call, floor, max, min, fmt = redis.call, math.floor, math.max, math.min, string.format

local GRACE_MS = 60000 -- added to every lifetime of a key
local LONG_MS = 34560000000 -- 400 days: for what does not empty by itself

-- num prints a whole number; int in time.lua is the same and slower.
local function num(n) return fmt('%d', n) end

-- Sliding window as a ring of 61 slots (p1 = slot width in us). The oldest slot
-- counts whole, so the ring never admits too much. HASH: `_` = "used,held,slot,
-- charged,held" with the newest slot's number and amounts, and the fields 0..60 =
-- "charged,held" of the older ones by their number modulo 61. st.v and st.h have
-- the older slots that were touched, by field.
local function ring_shape()
  local function put(st, k, text)
    local v, h
    if text then v, h = text:match('^(%d+),(%d+)$') end
    st.v[k], st.h[k] = tonumber(v or 0), tonumber(h or 0)
  end

  -- touch returns the field of slot i, older than the newest and in the window.
  local function touch(st, i)
    local k = num(i % 61)
    if not st.v then st.v, st.h = {}, {} end
    if not st.v[k] then put(st, k, call('HGET', st.key, k)) end
    return k
  end

  -- advance makes n the newest slot and empties those it overtakes.
  local function advance(st, n)
    local fields, last = {}, st.cur
    for i = last + 1, n do fields[i - last] = num(i % 61) end
    local got = call('HMGET', st.key, unpack(fields))
    st.v, st.h = {}, {}
    for i, k in ipairs(fields) do
      put(st, k, got[i])
      st.used, st.held = st.used - st.v[k], st.held - st.h[k]
      st.v[k], st.h[k] = 0, 0
    end
    last = num(last % 61)
    st.v[last], st.h[last] = st.cv, st.ch
    st.cur, st.cv, st.ch, st.new = n, 0, 0, true
  end

  local function touch_all(st)
    local fields = {}
    for i = st.cur - 60, st.cur - 1 do fields[#fields + 1] = num(i % 61) end
    local got = call('HMGET', st.key, unpack(fields))
    if not st.v then st.v, st.h = {}, {} end
    for i, k in ipairs(fields) do
      if not st.v[k] then put(st, k, not st.wipe and got[i]) end
    end
  end

  local function charge(st, n, _, _, held)
    st.cv, st.used = st.cv + n, st.used + n
    if held then st.ch, st.held = st.ch + n, st.held + n end
    return num(st.cur)
  end

  return {
    charge = charge,

    read = function(key, slot, _, now)
      local n = floor(now / slot)
      local text = call('HGET', key, '_')
      if not text then
        return { key = key, slot = slot, used = 0, held = 0, now = now, cur = n, cv = 0, ch = 0, new = true }
      end
      local used, held, cur, cv, ch = text:match('^(%d+),(%d+),(%d+),(%d+),(%d+)$')
      cur = tonumber(cur)
      if n - cur > 60 then
        return { key = key, slot = slot, used = 0, held = 0, now = now, cur = n, cv = 0, ch = 0, new = true, wipe = true }
      end
      local st = { key = key, slot = slot, used = tonumber(used), held = tonumber(held), now = now,
        cur = cur, cv = tonumber(cv), ch = tonumber(ch) }
      if n > cur then advance(st, n) end
      return st
    end,

    merge = function(st, place, n)
      return tonumber(place) == st.cur and charge(st, n, nil, nil, true)
    end,

    change = function(st, place, from, to, open)
      local i = tonumber(place)
      if i > st.cur or st.cur - i > 60 or st.wipe then return 0 end
      local back, h = 0, 0
      if i == st.cur then
        back, h = min(from - to, st.cv), open and min(from, st.ch) or 0
        st.cv, st.ch = st.cv - back, st.ch - h
      else
        local k = touch(st, i)
        back, h = min(from - to, st.v[k]), open and min(from, st.h[k]) or 0
        st.v[k], st.h[k] = st.v[k] - back, st.h[k] - h
      end
      st.used, st.held = st.used - back, st.held - h
      return back
    end,

    write = function(st)
      if st.wipe then call('DEL', st.key) end
      local head = fmt('%d,%d,%d,%d,%d', st.used, st.held, st.cur, st.cv, st.ch)
      if st.v then
        local args, i = { '_', head }, 2
        for k, v in pairs(st.v) do
          args[i + 1], args[i + 2], i = k, fmt('%d,%d', v, st.h[k]), i + 2
        end
        call('HSET', st.key, unpack(args))
      else
        call('HSET', st.key, '_', head)
      end
      if st.new then call('PEXPIRE', st.key, num(floor(st.slot * 61 / 1000) + GRACE_MS)) end
    end,

    look = function(st, excess)
      local resets, frees, gone = st.now, st.now, 0
      if st.used == 0 then return resets, frees end
      touch_all(st)
      for i = st.cur - 60, st.cur do
        local v = i == st.cur and st.cv or st.v[num(i % 61)]
        if v > 0 then
          resets = (i + 61) * st.slot
          if gone < excess then frees = resets end
          gone = gone + v
        end
      end
      return resets, frees
    end,

    forget = function(st)
      touch_all(st)
      for k in pairs(st.v) do st.v[k] = st.h[k] end
      st.cv = st.ch
      st.used = st.held
    end,
  }
end

-- Exact window (p1 = width in us). ZSET: one member "f:amount:id/nth" per part
-- scored by its time (f = h while held, s when settled), and three members whose
-- negative scores carry the sums: -1-used, -1-held, -1-last time.
local function log_shape()
  local function member(flag, n, id, nth)
    return flag .. ':' .. num(n) .. ':' .. id .. '/' .. nth
  end

  return {
    read = function(key, width, _, now)
      local st = { key = key, width = tonumber(width), used = 0, held = 0, now = now, rem = {}, add = {} }
      local got = call('ZMSCORE', key, '!used', '!held', '!time')
      if not got[1] then return st end
      st.used, st.held = -1 - tonumber(got[1]), -1 - tonumber(got[2])
      st.now = max(now, -1 - tonumber(got[3]))
      st.cut = st.now - st.width
      local from = 0
      repeat
        local gone = call('ZRANGEBYSCORE', key, '0', num(st.cut), 'LIMIT', num(from), '1000')
        for i = 1, #gone do
          local f, v = gone[i]:match('^(%a):(%d+):')
          st.used = st.used - v
          if f == 'h' then st.held = st.held - v end
        end
        from = from + #gone
      until #gone < 1000
      st.stale = from
      return st
    end,

    charge = function(st, n, id, nth, held)
      local place = num(st.now)
      if n > 0 then
        local i = #st.add
        st.add[i + 1], st.add[i + 2] = place, member(held and 'h' or 's', n, id, nth)
      end
      st.used = st.used + n
      if held then st.held = st.held + n end
      return place
    end,

    change = function(st, place, from, to, open, id, nth)
      if from == 0 or not st.cut or tonumber(place) <= st.cut then return 0 end
      local was = member(open and 'h' or 's', from, id, nth)
      if not call('ZSCORE', st.key, was) then return 0 end
      st.rem[#st.rem + 1] = was
      if to > 0 then
        local i = #st.add
        st.add[i + 1], st.add[i + 2] = place, member('s', to, id, nth)
      end
      st.used = st.used - (from - to)
      if open then st.held = st.held - from end
      return from - to
    end,

    write = function(st)
      if (st.stale or 0) > 0 then call('ZREMRANGEBYSCORE', st.key, '0', num(st.cut)) end
      if #st.rem > 0 then call('ZREM', st.key, unpack(st.rem)) end
      call('ZADD', st.key, num(-1 - st.used), '!used', num(-1 - st.held), '!held',
        num(-1 - st.now), '!time', unpack(st.add))
      call('PEXPIRE', st.key, num(floor(st.width / 1000) + GRACE_MS))
    end,

    -- Walks at most 1,000 entries; beyond them frees_at is too early, never too late.
    look = function(st, excess)
      local resets, frees, gone = st.now, st.now, 0
      if st.used == 0 then return resets, frees end
      local last = call('ZREVRANGE', st.key, '0', '0', 'WITHSCORES')
      resets = tonumber(last[2]) + st.width
      local after = '(' .. num(st.cut or 0)
      for from = 0, 900, 100 do
        if gone >= excess then break end
        local page = call('ZRANGEBYSCORE', st.key, after, '+inf', 'WITHSCORES', 'LIMIT', num(from), '100')
        for i = 1, #page, 2 do
          if gone >= excess then break end
          gone = gone + page[i]:match('^%a:(%d+):')
          frees = tonumber(page[i + 1]) + st.width
        end
        if #page < 200 then break end
      end
      return resets, frees
    end,

    forget = function(st)
      if not st.cut then return end
      local all = call('ZRANGEBYSCORE', st.key, '(' .. num(st.cut), '+inf')
      for i = 1, #all do
        if all[i]:sub(1, 2) == 's:' then call('ZREM', st.key, all[i]) end
      end
      st.used = st.held
    end,
  }
end

-- Token bucket (p1 units drain every p2 us, lowest terms). The state counts what
-- is used, not what is left, so that a new capacity keeps the usage, and debt is
-- used > capacity. STRING "used,fraction,time,held,volume,given/busy": beyond used,
-- fraction/p2 of a unit has drained; since `busy`, when the bucket was last empty,
-- `volume` was charged and `given` was given back, so volume - given - used has
-- drained.
--
-- What has drained cannot be given back: it has made room for others. A part's
-- place is "busy/volume/drained" as of right after its charge. First in, first out,
-- what remains of a part is at least
--   its volume - given - drained now  (all that was given back counted as ahead of
--                                      it), and
--   amount - drained since            (nothing was ahead of it),
-- so the larger of the two can go back.
local function bucket_shape()
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

  local function charge(st, n, _, _, held)
    st.used, st.volume = st.used + n, st.volume + n
    if held then st.held = st.held + n end
    return st.busy .. '/' .. fmt('%d/%d', st.volume, st.volume - st.given - st.used)
  end

  return {
    charge = charge,

    read = function(key, r, p, now)
      local st = { key = key, r = tonumber(r), p = tonumber(p), now = now, used = 0, f = 0, held = 0, volume = 0, given = 0 }
      local text = call('GET', key)
      if text then
        local used, f, t, held, volume, given, busy = text:match('^(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)/(%d+)$')
        used, f, t = tonumber(used), tonumber(f), tonumber(t)
        local c = 0
        if t > now then
          st.now = t
        elseif r ~= '0' and used > 0 then
          if f >= st.p then f = 0 end -- the refill was changed
          c, f = drain(now - t, st.r, st.p, f, used)
        end
        if c and c < used then
          st.used, st.f = used - c, f
          volume = tonumber(volume)
          if volume < 4503599627370496 then
            st.held, st.volume, st.given, st.busy = tonumber(held), volume, tonumber(given), busy
            return st
          end
        end
      end
      st.busy = num(st.now) -- a new count begins, nothing older can be given back
      st.volume = st.used
      return st
    end,

    merge = function(st, place, n)
      -- The added volume counts as if it stood right behind the part: not later
      -- than it does.
      local busy, volume, drained = place:match('^(%d+)/(%d+)/(%d+)$')
      if busy ~= st.busy then return nil end
      charge(st, n, nil, nil, true)
      return busy .. '/' .. num(volume + n) .. '/' .. drained
    end,

    change = function(st, place, from, to, open)
      local busy, volume, drained = place:match('^(%d+)/(%d+)/(%d+)$')
      if busy ~= st.busy then return 0 end
      if open then st.held = max(st.held - from, 0) end
      local now_drained = st.volume - st.given - st.used
      local left = max(volume - st.given - now_drained, from - (now_drained - drained))
      local back = max(min(from - to, left, st.used), 0)
      st.used, st.given = st.used - back, st.given + back
      if st.used == 0 then st.f = 0 end
      return back
    end,

    write = function(st)
      local ms = LONG_MS
      if st.r > 0 then ms = min(ms, floor(st.used / st.r * st.p / 1000) + GRACE_MS) end
      call('SET', st.key, fmt('%d,%d,%d,%d,%d,%d/', st.used, st.f, st.now, st.held, st.volume, st.given) .. st.busy,
        'PX', num(ms))
    end,

    look = function(st)
      return st.f, st.now
    end,

    forget = function(st)
      local keep = min(st.used, st.held)
      st.given, st.used = st.given + st.used - keep, keep
      if keep == 0 then st.f = 0 end
    end,
  }
end

-- Calendar period (p1 = "b0,b1,b2,b3", period boundaries in us around Go's clock).
-- STRING "start,end,used,held"; a new period starts at zero.
local function period_shape()
  local function charge(st, n, _, _, held)
    st.used = st.used + n
    if held then st.held = st.held + n end
    return num(st.from)
  end

  return {
    charge = charge,

    read = function(key, bounds, _, now)
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
    end,

    merge = function(st, place, n)
      return tonumber(place) == st.from and charge(st, n, nil, nil, true)
    end,

    change = function(st, place, from, to, open)
      if tonumber(place) ~= st.from then return 0 end
      local back = min(from - to, st.used)
      st.used = st.used - back
      if open then st.held = max(st.held - from, 0) end
      return back
    end,

    write = function(st)
      call('SET', st.key, fmt('%d,%d,%d,%d', st.from, st.to, st.used, st.held),
        'PX', num(floor((st.to - st.now) / 1000) + GRACE_MS))
    end,

    look = function(st)
      return st.to, st.to
    end,

    forget = function(st)
      st.used = st.held
    end,
  }
end

-- Concurrency (p1 = lease in us). ZSET: hold ids by the end of their lease.
local function concurrency_shape()
  return {
    read = function(key, lease, _, now)
      local n = call('ZCOUNT', key, '(' .. num(now), '+inf')
      return { key = key, lease = tonumber(lease), used = n, held = n, now = now }
    end,

    charge = function(st, _, id)
      st.used, st.held, st.enter = st.used + 1, st.held + 1, id
      return '0'
    end,

    change = function(st, _, _, _, _, id)
      st.leave = id
      return 0
    end,

    write = function(st)
      if st.leave then call('ZREM', st.key, st.leave) end
      if not st.enter then return end
      call('ZREMRANGEBYSCORE', st.key, '-inf', num(st.now))
      call('ZADD', st.key, num(st.now + st.lease), st.enter)
      call('PEXPIRE', st.key, num(floor(st.lease / 1000) + GRACE_MS))
    end,

    look = function(st)
      local one = call('ZRANGEBYSCORE', st.key, '(' .. num(st.now), '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
      local last = call('ZREVRANGE', st.key, '0', '0', 'WITHSCORES')
      return max(tonumber(last[2] or st.now), st.now), tonumber(one[2] or st.now)
    end,

    forget = function() end,
  }
end

-- shape_of returns the functions of a kind; only the kinds in use are built.
local built = {}
local function shape_of(kind)
  local s = built[kind]
  if s then return s end
  if kind == 'w' then
    s = ring_shape()
  elseif kind == 'b' then
    s = bucket_shape()
  elseif kind == 'x' then
    s = log_shape()
  elseif kind == 'c' then
    s = period_shape()
  else
    s = concurrency_shape()
  end
  built[kind] = s
  return s
end
