-- Library: the limit shapes (needs time.lua). One key holds the state of one
-- limit for one subject. A shape is a table of functions over a state `st`:
--
--   read(key, p1, p2, now)   state at `now`, nothing written; nil when Go's
--                            calendar does not reach `now`
--   charge(st, n, id, nth, held)
--                            adds n, returns its place; held: part of an open hold
--   write(st)                stores the state, returns its text
--   rest(s)                  adds the others to s; whole() does it:
--   merge(st, place, n)      adds n held to a part at its place when that is where a
--                            charge would go; returns the new place. Optional.
--   change(st, place, from, to, open, id, nth)
--                            the part at place becomes `to` <= from and stops being
--                            held when open; returns what was given back, 0 when
--                            the place has left the limit
--   look(st, excess)         resets_at, frees_at: the instants when nothing is left
--                            and when `excess` has gone (the bucket returns its
--                            fraction and its clock instead; Go does the division)
--   forget(st)               drops what was charged, keeps what is held
--
-- st.used is all that counts now, st.held the open holds in it, st.now the
-- time used: a state never goes back in time, it waits for the clock.
--
-- These run inside every call, so they are written for time. A function costs
-- 50 ns to define, in every run: what a hold does not need is in rest(). Printing
-- numbers costs most: '%d' is three times as fast as '%.0f' and as exact on a 64 bit
-- server, and a number given to redis.call is printed
-- with '%.17g', slower than both. Numbers stay well below 2^53.

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

  return {
    read = function(key, slot, _, now)
      local n = floor(now / slot)
      local text = call('HGET', key, '_')
      local used, held, cur, cv, ch
      if text then
        used, held, cur, cv, ch = text:match('^(%d+),(%d+),(%d+),(%d+),(%d+)$')
        cur = tonumber(cur)
      end
      if not cur or n - cur > 60 then
        return { key = key, slot = slot, used = 0, held = 0, now = now, cur = n, cv = 0, ch = 0,
          over = 0, new = true, wipe = cur }
      end
      local st = { key = key, slot = slot, used = tonumber(used), held = tonumber(held), now = now,
        cur = cur, cv = tonumber(cv), ch = tonumber(ch), over = 0 }
      if n <= cur then return st end

      -- n becomes the newest slot; those it overtakes are emptied.
      local fields = {}
      for i = cur + 1, n do fields[i - cur] = num(i % 61) end
      local got = call('HMGET', key, unpack(fields))
      st.v, st.h = {}, {}
      for i, k in ipairs(fields) do
        put(st, k, got[i])
        st.used, st.held = st.used - st.v[k], st.held - st.h[k]
        st.v[k], st.h[k] = 0, 0
      end
      local k = num(cur % 61)
      st.v[k], st.h[k] = st.cv, st.ch
      st.cur, st.cv, st.ch, st.new = n, 0, 0, true
      return st
    end,

    charge = function(st, n, _, _, held)
      st.cv, st.used = st.cv + n, st.used + n
      if held then st.ch, st.held = st.ch + n, st.held + n end
      return num(st.cur)
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
      return head
    end,

    rest = function(s)
      -- touch loads slot i, older than the newest and in the window.
      local function touch(st, i)
        local k = num(i % 61)
        if not st.v then st.v, st.h = {}, {} end
        if not st.v[k] then put(st, k, not st.wipe and call('HGET', st.key, k)) end
        return k
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

      function s.merge(st, place, n)
        return tonumber(place) == st.cur and s.charge(st, n, nil, nil, true)
      end

      function s.change(st, place, from, to, open)
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
      end

      function s.look(st, excess)
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
      end

      function s.forget(st)
        touch_all(st)
        for k in pairs(st.v) do st.v[k] = st.h[k] end
        st.cv = st.ch
        st.used = st.held
      end
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
      local st = { key = key, width = tonumber(width), used = 0, held = 0, now = now, over = 0, rem = {}, add = {} }
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

    write = function(st)
      if (st.stale or 0) > 0 then call('ZREMRANGEBYSCORE', st.key, '0', num(st.cut)) end
      if #st.rem > 0 then call('ZREM', st.key, unpack(st.rem)) end
      call('ZADD', st.key, num(-1 - st.used), '!used', num(-1 - st.held), '!held',
        num(-1 - st.now), '!time', unpack(st.add))
      call('PEXPIRE', st.key, num(floor(st.width / 1000) + GRACE_MS))
      return fmt('%d,%d', st.used, st.held)
    end,

    rest = function(s)
      function s.change(st, place, from, to, open, id, nth)
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
      end

      -- Walks at most 1,000 entries; beyond them frees_at is too early, never too late.
      function s.look(st, excess)
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
      end

      function s.forget(st)
        if not st.cut then return end
        local all = call('ZRANGEBYSCORE', st.key, '(' .. num(st.cut), '+inf')
        for i = 1, #all do
          if all[i]:sub(1, 2) == 's:' then call('ZREM', st.key, all[i]) end
        end
        st.used = st.held
      end
    end,
  }
end

-- Token bucket (p1 units drain every p2 us, lowest terms). The state counts what
-- is used, not what is left, so that a new capacity keeps the usage, and debt is
-- used > capacity. STRING "held,time,<place>", the place "used/volume/fraction/given/
-- busy": beyond used, fraction/p2 of a unit has drained; since `busy`, when the
-- bucket was last empty, `volume` was charged and `given` was given back, so
-- volume - given - used has drained.
--
-- What has drained cannot be given back: it has made room for others. A part keeps
-- the place as of right after its charge. First in, first out, what remains of a
-- part is at least
--   its volume - given - drained now  (all that was given back counted as ahead of
--                                      it), and
--   amount - drained since            (nothing was ahead of it),
-- so the larger of the two can go back; a unit that has drained in part counts as
-- drained.
local function bucket_shape()
  -- What drains in e us, exactly, and the new fraction; nil: all of `used`. For
  -- products beyond 2^53 it divides digit by digit (base 256; p < 2^44).
  local function drain(e, r, p, f, used)
    local x = e * r + f
    if x < 9007199254740992 then
      local c = floor(x / p)
      return c, x - c * p
    end
    if x > (used + 1) * p * 1.000001 then return nil end
    local q, n = floor(r / p), floor(e / p)
    local m, s = e - n * p, r - q * p -- left to do: (m * s + f) / p
    local c, rest, base = 0, 0, 1099511627776
    while base >= 1 do
      local digit = floor(m / base)
      m = m - digit * base
      x = rest * 256 + digit * s
      local k = floor(x / p)
      c, rest, base = c * 256 + k, x - k * p, base / 256
    end
    x = rest + f
    local k = floor(x / p)
    return e * q + n * s + c + k, x - k * p
  end

  local function place_of(st)
    return fmt('%d/%d/%d/', st.used, st.volume, st.f) .. st.given .. '/' .. st.busy
  end

  return {
    read = function(key, r, p, now)
      local text = call('GET', key)
      local t = now
      if text then
        local held, clock, used, volume, f, given, busy = text:match('^(%d+),(%d+),(%d+)/(%d+)/(%d+)/(%d+)/(%d+)$')
        used, f, clock = tonumber(used), tonumber(f), tonumber(clock)
        local c = 0
        if clock > now then
          t = clock
        elseif r ~= '0' and used > 0 then
          p = tonumber(p)
          if f >= p then f = 0 end -- the refill was changed
          c, f = drain(now - clock, tonumber(r), p, f, used)
        end
        if c and c < used then
          volume = tonumber(volume)
          if volume < 4503599627370496 then
            return { key = key, r = r, p = p, now = t, used = used - c, f = f, held = tonumber(held),
              volume = volume, given = given, busy = busy, over = 0 }
          end
          used = used - c -- the count begins anew, nothing older can be given back
          return { key = key, r = r, p = p, now = t, used = used, f = f, held = 0,
            volume = used, given = '0', busy = num(t), over = 0 }
        end
      end
      return { key = key, r = r, p = p, now = t, used = 0, f = 0, held = 0, volume = 0, given = '0', busy = num(t), over = 0 }
    end,

    charge = function(st, n, _, _, held)
      st.used, st.volume = st.used + n, st.volume + n
      if held then st.held = st.held + n end
      st.place = place_of(st)
      return st.place
    end,

    write = function(st)
      local ms = LONG_MS
      if st.r ~= '0' then ms = min(ms, floor(st.used / st.r * st.p / 1000) + GRACE_MS) end
      local text = fmt('%d,%d,', st.held, st.now) .. (st.place or place_of(st))
      call('SET', st.key, text, 'PX', num(ms))
      return text
    end,

    rest = function(s)
      function s.merge(st, place, n)
        -- The added volume counts as if it stood right behind the part: not later
        -- than it does. Drained = volume - given - used stays the part's.
        local used, volume, rest, busy = place:match('^(%d+)/(%d+)/(.*/(%d+))$')
        if busy ~= st.busy then return nil end
        s.charge(st, n, nil, nil, true)
        return fmt('%d/%d/', used + n, volume + n) .. rest
      end

      function s.change(st, place, from, to, open)
        local used, volume, f, given, busy = place:match('^(%d+)/(%d+)/(%d+)/(%d+)/(%d+)$')
        if busy ~= st.busy then return 0 end
        if open then st.held = max(st.held - from, 0) end
        local drained, since = st.volume - st.given - st.used, volume - given - used
        local left = max(volume - st.given - drained - (st.f > 0 and 1 or 0),
          from - (drained - since) - (st.f ~= tonumber(f) and 1 or 0))
        local back = max(min(from - to, left, st.used), 0)
        st.used, st.given, st.place = st.used - back, num(st.given + back), nil
        if st.used == 0 then st.f = 0 end
        return back
      end

      function s.look(st)
        return st.f, st.now
      end

      function s.forget(st)
        local keep = min(st.used, st.held)
        st.given, st.used = num(st.given + st.used - keep), keep
        if keep == 0 then st.f = 0 end
      end
    end,
  }
end

-- Calendar period (p1 = "b0,b1,b2,b3", period boundaries in us around Go's clock).
-- STRING "used,held,start,end"; a new period starts at zero.
local function period_shape()
  return {
    read = function(key, bounds, _, now)
      local text = call('GET', key)
      if text then
        local used, held, from, to = text:match('^(%d+),(%d+),(%d+),(%d+)$')
        if now < tonumber(to) then
          return { key = key, used = tonumber(used), held = tonumber(held), from = from, to = tonumber(to), over = 0,
            now = max(now, tonumber(from)) }
        end
      end
      local st = { key = key, used = 0, held = 0, now = now, over = 0 }
      for b in bounds:gmatch('%d+') do
        if tonumber(b) > now then
          st.to = tonumber(b)
          break
        end
        st.from = b
      end
      if st.from and st.to then return st end
      return nil
    end,

    charge = function(st, n, _, _, held)
      st.used = st.used + n
      if held then st.held = st.held + n end
      return st.from
    end,

    write = function(st)
      local text = fmt('%d,%d,%s,%d', st.used, st.held, st.from, st.to)
      call('SET', st.key, text, 'PX', num(floor((st.to - st.now) / 1000) + GRACE_MS))
      return text
    end,

    rest = function(s)
      function s.merge(st, place, n)
        return place == st.from and s.charge(st, n, nil, nil, true)
      end

      function s.change(st, place, from, to, open)
        if place ~= st.from then return 0 end
        local back = min(from - to, st.used)
        st.used = st.used - back
        if open then st.held = max(st.held - from, 0) end
        return back
      end

      function s.look(st)
        return st.to, st.to
      end

      function s.forget(st)
        st.used = st.held
      end
    end,
  }
end

-- Concurrency (p1 = lease in us). ZSET: hold ids by the end of their lease.
local function concurrency_shape()
  return {
    read = function(key, lease, _, now)
      local n = call('ZCOUNT', key, '(' .. num(now), '+inf')
      return { key = key, lease = tonumber(lease), used = n, held = n, now = now, over = 0 }
    end,

    charge = function(st, _, id)
      st.used, st.held, st.enter = st.used + 1, st.held + 1, id
      return '0'
    end,

    write = function(st)
      if st.leave then call('ZREM', st.key, st.leave) end
      if st.enter then
        call('ZREMRANGEBYSCORE', st.key, '-inf', num(st.now))
        call('ZADD', st.key, num(st.now + st.lease), st.enter)
        call('PEXPIRE', st.key, num(floor(st.lease / 1000) + GRACE_MS))
      end
      return fmt('%d,%d', st.used, st.held)
    end,

    rest = function(s)
      function s.change(st, _, _, _, _, id)
        st.leave = id
        return 0
      end

      function s.look(st)
        local one = call('ZRANGEBYSCORE', st.key, '(' .. num(st.now), '+inf', 'WITHSCORES', 'LIMIT', '0', '1')
        local last = call('ZREVRANGE', st.key, '0', '0', 'WITHSCORES')
        return max(tonumber(last[2] or st.now), st.now), tonumber(one[2] or st.now)
      end

      function s.forget() end
    end,
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

-- whole returns all functions of a kind.
local function whole(kind)
  local s = shape_of(kind)
  if s.rest then
    s.rest(s)
    s.rest = nil
  end
  return s
end
