-- Library: the shape of kind b (needs shapes).
--
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
  return {
    read = function(key, r, p, now)
      local text = call('GET', key)
      if not text then
        return { now = now, used = 0, f = 0, held = 0, volume = 0, given = '0', busy = num(now), over = 0 }
      end
      local held, clock, used, volume, f, given, busy = text:match('^(%d+),(%d+),(%d+)/(%d+)/(%d+)/(%d+)/(%d+)$')
      local c, e = 0, now - clock
      used, f, volume = used + 0, f + 0, volume + 0
      if e < 0 then
        now = clock + 0
      elseif r ~= '0' and used > 0 then
        r, p = r + 0, p + 0
        if f >= p then f = 0 end -- the refill was changed
        -- c units drain in e us, exactly: (e * r + f) / p with the rest in f.
        local x = e * r + f
        if x < 9007199254740992 then
          c = floor(x / p)
          f = x - c * p
        elseif x > (used + 1) * p * 1.000001 then
          c = used
        else -- digit by digit, base 256; p < 2^44
          local q, n = floor(r / p), floor(e / p)
          local m, s, rest, base = e - n * p, r - q * p, 0, 1099511627776
          while base >= 1 do
            local digit = floor(m / base)
            m = m - digit * base
            x = rest * 256 + digit * s
            local k = floor(x / p)
            c, rest, base = c * 256 + k, x - k * p, base / 256
          end
          local k = floor((rest + f) / p)
          c, f = c + k + e * q + n * s, rest + f - k * p
        end
      end
      if c < used and volume < 4503599627370496 then
        return { now = now, used = used - c, f = f, held = held + 0, volume = volume, given = given, busy = busy, over = 0 }
      end
      -- The count begins anew: nothing older can be given back.
      used = max(used - c, 0)
      if used == 0 then f = 0 end
      return { now = now, used = used, f = f, held = 0, volume = used, given = '0', busy = num(now), over = 0 }
    end,

    charge = function(st, n, _, _, held)
      st.used, st.volume = st.used + n, st.volume + n
      if held then st.held = st.held + n end
      return fmt('%d/%d/%d/', st.used, st.volume, st.f) .. st.given .. '/' .. st.busy
    end,

    write = function(st, key, r, p)
      local ms = LONG_MS
      if r ~= '0' then ms = min(ms, floor(st.used / r * p / 1000) + GRACE_MS) end
      local text = fmt('%d,%d,%d/%d/%d/', st.held, st.now, st.used, st.volume, st.f) .. st.given .. '/' .. st.busy
      call('SET', key, text, 'PX', num(ms))
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

      function s.change(st, _, place, from, to, open)
        local used, volume, f, given, busy = place:match('^(%d+)/(%d+)/(%d+)/(%d+)/(%d+)$')
        if busy ~= st.busy then return 0 end
        if open then st.held = max(st.held - from, 0) end
        local drained, since = st.volume - st.given - st.used, volume - given - used
        local left = max(volume - st.given - drained - (st.f > 0 and 1 or 0),
          from - (drained - since) - (st.f ~= tonumber(f) and 1 or 0))
        local back = max(min(from - to, left, st.used), 0)
        st.used, st.given = st.used - back, num(st.given + back)
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
