-- Library: the shape of kind c (needs shapes).
--
-- Calendar period (p1 = "b0,b1,b2,b3", period boundaries in us around Go's clock).
-- STRING "used,held,start,end"; a new period starts at zero.
local function period_shape()
  return {
    read = function(key, bounds, _, now)
      local text = call('GET', key)
      if text then
        local used, held, from, to = text:match('^(%d+),(%d+),(%d+),(%d+)$')
        if now < tonumber(to) then
          return { used = used + 0, held = held + 0, from = from, to = to + 0, over = 0, now = max(now, from + 0) }
        end
      end
      local st = { used = 0, held = 0, now = now, over = 0 }
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

    write = function(st, key)
      local text = fmt('%d,%d,%s,%d', st.used, st.held, st.from, st.to)
      call('SET', key, text, 'PX', num(floor((st.to - st.now) / 1000) + GRACE_MS))
      return text
    end,

    rest = function(s)
      function s.merge(st, place, n)
        return place == st.from and s.charge(st, n, nil, nil, true)
      end

      function s.change(st, _, place, from, to, open)
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
