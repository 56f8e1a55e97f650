-- Library: the shape of kind b (needs shapes).
--
-- Token bucket (p1 units drain every p2 us, lowest terms). The state counts what
-- is used, not what is left, so that a new capacity keeps the usage, and debt is
-- used > capacity. A value is a pair: whole units less fraction/p2 of one.
-- STRING "held,clock,used,fraction,busy,p1:p2;<dip>;<dip>;..", newest dip first;
-- the place of a part is the time of its charge.
--
-- Giving b back must leave what would be used had b never been charged: all
-- that is used since falls by b, but not below 0, where nothing drains. So what
-- goes back is min(b, m), m the least that was used from the charge until now. The
-- least is used now or just before a later charge, in a dip "time,until,whole,
-- fraction". A dip counts for the parts charged before it. One that is not below
-- all later ones never decides again and goes. Giving back lowers the dips after
-- the part. `busy` is when the bucket was last empty: older parts give nothing.
--
-- Many calls at once make many dips. From SOFT bytes on two neighbours become one,
-- at the time of the first and lowered by what drained until the second: what lies
-- between was only charged, so the second is never lower than that. This counts a
-- drain too early, once for all calls: what is used ends too high by no more than
-- drained between two dips. `until` is the time from there to the last dip taken
-- in; 0: not known, as the refill was changed. From HARD bytes on it is done again.
local SOFT, HARD, DIPS, NEAR = 600, 800, 12, 10000

-- above drops the first dips of a list that are not below a value.
local function above(list, used, f)
  local from = 1
  while true do
    local whole, g, after = list:match('^%d+,%d*,(%d+),(%d+);()', from)
    if not whole then return from > 1 and '' or list end
    whole = whole + 0
    if whole < used or whole == used and g + 0 > f then break end
    from = after
  end
  return from > 1 and list:sub(from) or list
end

-- lowered returns a whole part less what drains in e us, rounded down.
local function lowered(whole, e, r, p)
  local x = e * r
  if x < 9007199254740992 then return whole + floor(-x / p) end
  return whole - floor(x / p * 1.000000000000001) - 2
end

-- squeeze shortens a list to DIPS.
local function squeeze(list, now, r, p)
  local time, till, whole, frac, n = {}, {}, {}, {}, 0
  for t, u, w, g in list:gmatch('(%d+),(%d*),(%d+),(%d+);') do
    n = n + 1
    time[n], whole[n], frac[n] = t + 0, w + 0, g + 0
    till[n] = u == '0' and 0 or t + (u == '' and 0 or u)
  end

  -- join lowers dip i by what drained until dip j, unless it would be below 0.
  local function join(i, j)
    if till[i] == 0 then return false end
    local low = lowered(whole[i], till[j] - till[i], r, p)
    if low < (frac[i] > 0 and 1 or 0) then return false end
    whole[i], till[i] = low, till[j]
    return true
  end

  local function copy(i, j) time[i], till[i], whole[i], frac[i] = time[j], till[j], whole[j], frac[j] end
  local function lower(i, j) return whole[i] < whole[j] or whole[i] == whole[j] and frac[i] > frac[j] end
  for i = 1, floor(n / 2) do -- oldest first
    copy(0, i)
    copy(i, n + 1 - i)
    copy(n + 1 - i, 0)
  end
  -- The older a dip, the longer may be what it stands for.
  local share = 0.0625
  repeat
    local k = 0
    for i = 1, n do
      while k > 0 and not lower(k, i) do k = k - 1 end
      if k > 0 and till[i] - time[k] <= (now - time[k]) * share and join(k, i) then
        while k > 1 and not lower(k - 1, k) do
          copy(k - 1, k)
          k = k - 1
        end
      else
        k = k + 1
        copy(k, i)
      end
    end
    n, share = k, share * 2
  until n <= DIPS or share > 1
  -- Dips near 0 cannot be lowered: the later of two falls to the earlier.
  while n > DIPS do
    local at = 1
    for i = 2, n - 1 do
      if whole[i + 1] - whole[i] < whole[at + 1] - whole[at] then at = i end
    end
    whole[at + 1], frac[at + 1] = whole[at], frac[at]
    for i = at, n - 1 do copy(i, i + 1) end
    n = n - 1
  end
  list = ''
  for i = 1, n do
    local u = till[i] == time[i] and '' or num(max(till[i] - time[i], 0))
    list = fmt('%d,%s,%d,%d;', time[i], u, whole[i], frac[i]) .. list
  end
  return list
end

local function bucket_shape()
  return {
    read = function(key, r, p, now)
      local text, rate = call('GET', key), r .. ':' .. p
      if not text then
        return { now = now, used = 0, f = 0, held = 0, busy = num(now), dips = '', rate = rate, over = 0 }
      end
      local held, clock, used, f, busy, old, dips = text:match('^(%d+),(%d+),(%d+),(%d+),(%d+),([%d:]+);()')
      dips = text:sub(dips)
      used, f = used + 0, f + 0
      if old ~= rate then -- the refill was changed: drop all fractions
        f = 0
        dips = dips:gsub('(%d+),%d*,(%d+),(%d+);', function(t, whole, g)
          return t .. ',0,' .. num(whole - (g == '0' and 0 or 1)) .. ',0;'
        end)
      end
      local c, e = 0, now - clock
      if e < 0 then
        now = clock + 0
      elseif r ~= '0' and used > 0 then
        r, p = r + 0, p + 0
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
      if c < used then
        return { now = now, used = used - c, f = f, held = held + 0, busy = busy, dips = dips, rate = rate, over = 0 }
      end
      return { now = now, used = 0, f = 0, held = 0, busy = num(now), dips = '', rate = rate, over = 0 }
    end,

    charge = function(st, n, _, _, held)
      local at = num(st.now)
      if at ~= st.busy then -- else nothing has drained yet
        local dips, used, f = st.dips, st.used, st.f
        local t, u, whole, g, after = dips:match('^(%d+),(%d*),(%d+),(%d+);()')
        if t and whole + 0 >= used and (whole + 0 > used or g + 0 <= f) then
          dips = above(dips, used, f)
          t, u, whole, g, after = dips:match('^(%d+),(%d*),(%d+),(%d+);()')
        end
        if t ~= at then
          local low = -1
          if #dips > SOFT and at - t <= NEAR and u ~= '0' then
            local r, p = st.rate:match('(%d+):(%d+)')
            low = lowered(whole, at - t - (u == '' and 0 or u), r, p + 0) - (g == '0' and 0 or 1)
          end
          if low >= 0 then
            st.dips = fmt('%s,%d,%d,%s;', t, at - t, low + (g == '0' and 0 or 1), g) .. dips:sub(after)
          else
            st.dips = fmt('%s,,%d,%d;', at, used, f) .. dips
          end
        end
      end
      st.used = st.used + n
      if held then st.held = st.held + n end
      return at
    end,

    write = function(st, key, r, p)
      local ms = LONG_MS
      if r ~= '0' then ms = min(ms, floor(st.used / r * p / 1000) + GRACE_MS) end
      if #st.dips > HARD then st.dips = squeeze(st.dips, st.now, r, p) end
      local text = fmt('%d,%d,%d,%d', st.held, st.now, st.used, st.f)
      call('SET', key, text .. ',' .. st.busy .. ',' .. st.rate .. ';' .. st.dips, 'PX', num(ms))
      return text
    end,

    rest = function(s)
      function s.merge(st, place, n)
        if place ~= num(st.now) then return nil end
        s.charge(st, n, nil, nil, true)
        return place
      end

      function s.change(st, _, place, from, to, open)
        place = place + 0
        if place < st.busy + 0 then return 0 end
        if open then st.held = max(st.held - from, 0) end
        local back = from - to
        if back <= 0 then return 0 end

        -- The dips after the part, and the least that was used since.
        local dips, heads, wholes, fracs, n, at = above(st.dips, st.used, st.f), {}, {}, {}, 0, 1
        local least, g = st.used, st.f
        while true do
          local head, t, whole, frac, after = dips:match('^((%d+),%d*,)(%d+),(%d+);()', at)
          if not t or t + 0 <= place then break end
          at, whole, frac = after, whole + 0, frac + 0
          if whole < least or whole == least and frac > g then
            n, least, g = n + 1, whole, frac
            heads[n], wholes[n], fracs[n] = head, whole, frac
          end
        end

        local minus, less, rest = back, 0, ''
        if least - (g > 0 and 1 or 0) >= back then
          rest = above(dips:sub(at), least - back, g)
        else -- down to nothing, with the fraction
          minus, less, back = least, g, max(least - (g > 0 and 1 or 0), 0)
        end
        local p = st.rate:match('%d+$') + 0
        for i = 1, n do
          local whole, frac = wholes[i] - minus, fracs[i] - less
          if frac < 0 then whole, frac = whole + 1, frac + p end
          heads[i] = heads[i] .. fmt('%d,%d;', whole, frac)
        end
        st.dips = table.concat(heads) .. rest
        st.used, st.f = st.used - minus, st.f - less
        if st.f < 0 then st.used, st.f = st.used + 1, st.f + p end
        return back
      end

      function s.look(st)
        return st.f, st.now
      end

      function s.forget(st)
        if st.held < st.used then st.used, st.f = st.held, 0 end
      end
    end,
  }
end
