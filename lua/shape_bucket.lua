-- Part of shape_of: the shape of kind b (needs shapes).
--
-- Token bucket (p1 units drain every p2 us, lowest terms). The state counts what is used, not what
-- is left, so that a new capacity keeps the usage, and debt is used > capacity. A value is a pair:
-- whole units minus fraction/p2 of one. HASH: `_` = "held,clock,used,fraction,busy,p1:p2,<expiry
-- ms>[:lead];oldest,newest,<last dip>,whole", and older dips in the fields oldest..newest; fields
-- above are garbage. The place of a part is the time of its charge. Like all times here except
-- `clock`, it is ahead of the clock by `lead` us if the clock went back.
--
-- A new refill applies from the first call that is held or refused under it: what drained until
-- then drained at the rate in `_`. Ending, growing or reading a hold uses that rate, not its own
-- (st.other), which may be older.
--
-- Giving b back must leave what would be used had b never been charged: all usage since then falls
-- by b, but not below 0, where nothing drains. So the amount given back is min(b, m), where m is
-- the minimum used from the charge until now. The minimum is what is used now, or the value just
-- before a later charge, a dip "time,until,more,fraction". A dip counts for the parts charged
-- before it. One that is not below all later ones never matters again and is dropped. Giving back
-- lowers the dips after the part. `busy` is when the bucket was last empty: older parts give
-- nothing back. The last dip is in `_` (time 0: none). Like the fields, it stores its whole units
-- as the difference to the dip before it: lowering all dips after a part then changes one field,
-- and only the last dip needs its whole units.
--
-- Many concurrent calls make many dips. When there are more than 22, two neighbors are merged, at
-- the time of the first, lowered by what drained until the second: in between there were only
-- charges, so the second is never lower than that. This counts a drain too early, once for all
-- calls: the final usage is too high by at most what drained between two dips. `until` is the time
-- from there to the last merged dip; 0: not known, because the refill changed. From 31 dips on,
-- dips are merged until 16 are left.

-- field reads a dip. All dips are in st.all if the refill was changed, and the newest is in st.push
-- until it is written.
local function field(st, i)
  local text = i == st.hi and st.push or st.all and st.all[i] or call('HGET', st.key, num(i))
  return text:match('^([^,]+),([^,]*),([^,]+),(.+)$')
end

-- above drops the last dips that are not below what is used.
local function above(st)
  while st.whole > st.used or st.whole == st.used and st.g + 0 <= st.f do
    if st.hi - st.lo < 0 then
      st.t, st.u, st.more, st.g, st.whole = '0', '', 0, 0, -1
      return
    end
    st.whole = st.whole - st.more
    st.t, st.u, st.more, st.g = field(st, st.hi)
    st.hi, st.push = st.hi - 1, false
  end
end

local function read(key, p1, p2, now)
  local st
  local text = call('HGET', key, '_')
  if not text then
    st = { now = now, used = 0, f = 0, held = 0, busy = num(now), till = '0', key = key, lo = 1, hi = 0,
      t = '0', u = '', more = 0, g = 0, whole = -1, rate = p1 .. ':' .. p2, push = false }
  else
    local held, clock, used, f, busy, rate, till, lead, lo, hi, t, u, more, g, whole = text:match(
      '^([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^,]+),([^;:]+):?([^;]*);' ..
      '([^,]+),([^,]+),([^,]+),([^,]*),([^,]+),([^,]+),(.+)$')
    used, f = used + 0, f + 0
    st = { now = now, used = used, f = f, held = held, busy = busy, till = till, key = key, lo = lo + 0,
      hi = hi + 0, t = t, u = u, more = more, g = g, whole = whole + 0, rate = rate, push = false }
    local drained, elapsed, r1, r2 = 0, now - clock, p1, p2
    if rate ~= p1 .. ':' .. p2 then
      st.other = p1 .. ':' .. p2
      r1, r2 = rate:match('^(.*):(.*)$')
    end
    if elapsed < -BACK_US then
      lead = (lead == '' and 0 or lead) - elapsed
    elseif elapsed < 0 then
      st.now = clock + 0
    end
    if lead ~= '' then
      st.lead = lead + 0
      st.now = st.now + st.lead
    end
    st.late = elapsed < -BACK_US or elapsed > SEEN_US
    if elapsed > 0 and r1 ~= '0' and used > 0 then
      local r, p = r1 + 0, r2 + 0
      -- c units drain in e us, exactly: (e * r + f) / p with the rest in f.
      local x = elapsed * r + f
      if x < 9007199254740992 then
        drained = floor(x / p)
        f = x - drained * p
      elseif x > (used + 1) * p * 1.000001 then
        drained = used
      else -- digit by digit, base 256; p < 2^44
        local q, n = floor(r / p), floor(elapsed / p)
        local m, s, rest, base = elapsed - n * p, r - q * p, 0, 1099511627776
        while base >= 1 do
          local digit = floor(m / base)
          m = m - digit * base
          x = rest * 256 + digit * s
          local k = floor(x / p)
          drained, rest, base = drained * 256 + k, x - k * p, base / 256
        end
        local k = floor((rest + f) / p)
        drained, f = drained + k + elapsed * q + n * s, rest + f - k * p
      end
    end
    if drained < used then
      st.used, st.f = used - drained, f
    else
      st.used, st.f, st.held, st.busy, st.all, st.late = 0, 0, 0, num(st.now), nil, false
      st.hi, st.t, st.u, st.more, st.g, st.whole = st.lo - 1, '0', '', 0, 0, -1
    end
  end
  return st
end

local function charge(st, n, id, nth, held)
  if st.other and held and nth == 1 then
    --+ bucket_near
    --+ bucket_all
    changed(st)
  end
  local place = num(st.now)
  if place ~= st.busy then -- otherwise nothing has drained yet
    above(st)
    local t = st.t
    if t ~= place then
      local low = -1
      if st.hi - st.lo > 20 and place - t <= 10000 and st.u ~= '0' then
        --+ bucket_near
        local r, p = st.rate:match('^(.*):(.*)$')
        local bit = st.g + 0 == 0 and 0 or 1
        low = lowered(st.whole, place - t - (st.u == '' and 0 or st.u), r, p + 0) - bit
        if low >= 0 then
          st.u = num(place - t)
          sink(st, low + bit)
        end
      end
      if low < 0 then
        if t ~= '0' then
          st.push = t .. ',' .. st.u .. fmt(',%d,%d', st.more, st.g)
          st.hi, st.more = st.hi + 1, st.used - st.whole
        else
          st.more = st.used
        end
        st.t, st.u, st.g, st.whole = place, '', st.f, st.used
        if st.hi - st.lo > 28 then
          --+ bucket_near
          --+ bucket_all
          squeeze(st, st.rate:match('^(.*):(.*)$'))
        end
      end
    end
  end
  st.used = st.used + n
  if held then st.held = st.held + n end
  return place
end

local function text_of(st)
  return fmt('%d,%d,%d,%d', st.held, st.now - (st.lead or 0), st.used, st.f)
end

local function write(st, key, p1, p2, text)
  text = text or text_of(st)
  if st.squeezed then
    call('DEL', key) -- including garbage
    st.till = '0'
  end
  if st.all then
    for i = st.lo, st.hi do
      if st.all[i] then call('HSET', key, num(i), st.all[i]) end
    end
  end
  -- The key outlives its content by at least a minute. Its expiry is changed only if it is too
  -- early, or later than necessary.
  local ms, till, r1, r2 = LONG_MS, st.till, p1, p2
  if st.other then r1, r2 = st.rate:match('^(.*):(.*)$') end
  if r1 ~= '0' then ms = min(ms, floor(st.used / r1 * r2 / 1000) + GRACE_MS) end
  local wanted, slack = floor(st.now / 1000) + ms, floor(ms / 4)
  local renew = till - wanted < 0 or till - wanted > slack * 2
  if renew then till = num(wanted + slack) end
  local head = text .. ',' .. st.busy .. ',' .. st.rate .. ',' .. till ..
    (st.lead and ':' .. num(st.lead) or '') .. fmt(';%d,%d,', st.lo, st.hi) .. st.t ..
    ',' .. st.u .. fmt(',%d,%d,%d', st.more, st.g, st.whole)
  if st.push then
    call('HSET', key, '_', head, num(st.hi), st.push)
  else
    call('HSET', key, '_', head)
  end
  if renew then call('PEXPIRE', key, num(ms + slack)) end
end

local function change(st, key, place, from, to, open, id, nth)
  local back = 0
  if place - st.busy >= 0 then
    if open then st.held = max(st.held - from, 0) end
    if from > to then
      above(st)
      if place - st.t >= 0 then -- the last charge: returning all of it includes the fraction
        local low = st.used - (st.f > 0 and 1 or 0)
        if low < from - to then
          st.used, st.f, back = 0, 0, max(low, 0)
        else
          st.used, back = st.used - (from - to), from - to
        end
        if st.used > 0 then
          above(st)
        else
          st.hi, st.t, st.u, st.more, st.g, st.whole = st.lo - 1, '0', '', 0, 0, -1
        end
      else
        --+ bucket_near
        --+ bucket_give
      end
    end
  end
  return back
end

local function rest(s)
  function s.merge(st, place, n)
    if place ~= num(st.now) then return nil end
    s.charge(st, n, nil, nil, true)
    return place
  end

  function s.look(st)
    return st.other and 0 or st.f, st.now - (st.lead or 0)
  end

  function s.frees(st)
    return ',' .. num(st.other and 0 or st.f)
  end

  -- refill applies the given refill from now on.
  function s.refill(st)
    --+ bucket_near
    --+ bucket_all
    changed(st)
  end

  function s.forget(st)
    if st.held - st.used < 0 then st.used, st.f = st.held, 0 end
  end
end

return { read = read, charge = charge, change = change, text = text_of, write = write, rest = rest }
