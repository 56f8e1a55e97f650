-- Part of shape_bucket: functions over all dips.

-- dips returns all dips as lists, oldest first, and their number.
local function dips(st)
  local time, till, whole, frac, n = {}, {}, { [0] = 0 }, {}, 0
  local function add(t, u, more, g)
    n = n + 1
    time[n], whole[n], frac[n] = t + 0, whole[n - 1] + more, g + 0
    till[n] = u == '0' and 0 or t + (u == '' and 0 or u)
  end
  for i = st.lo, st.hi do
    if i == st.hi and st.push then
      add(st.push:match('^([^,]+),([^,]*),([^,]+),(.+)$'))
    else
      add(field(st, i))
    end
  end
  if st.t ~= '0' then add(st.t, st.u, st.more, st.g) end
  return time, till, whole, frac, n
end

-- squeeze reduces the dips to at most 16.
local function squeeze(st, r, p)
  local time, till, whole, frac, n = dips(st)

  -- join lowers dip i by what drained until dip j, unless it would fall below 0.
  local function join(i, j)
    if till[i] == 0 then return false end
    local low = lowered(whole[i], till[j] - till[i], r, p)
    if low < (frac[i] > 0 and 1 or 0) then return false end
    whole[i], till[i] = low, till[j]
    return true
  end

  local function copy(i, j) time[i], till[i], whole[i], frac[i] = time[j], till[j], whole[j], frac[j] end
  local function lower(i, j) return whole[i] < whole[j] or whole[i] == whole[j] and frac[i] > frac[j] end
  -- The older a dip, the longer the span it may represent.
  local share = 0.0625
  repeat
    local k = 0
    for i = 1, n do
      while k > 0 and not lower(k, i) do k = k - 1 end
      if k > 0 and till[i] - time[k] <= (st.now - time[k]) * share and join(k, i) then
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
  until n <= 16 or share > 1
  -- Dips close to 0 cannot be lowered: of two, the later gets the value of the earlier.
  while n > 16 do
    local at = 1
    for i = 2, n - 1 do
      if whole[i + 1] - whole[i] < whole[at + 1] - whole[at] then at = i end
    end
    whole[at + 1], frac[at + 1] = whole[at], frac[at]
    for i = at, n - 1 do copy(i, i + 1) end
    n = n - 1
  end
  st.all = {}
  for i = 1, n do
    local u = till[i] == time[i] and '' or num(max(till[i] - time[i], 0))
    local more = i == 1 and whole[1] or whole[i] - whole[i - 1]
    if i < n then
      st.all[i] = fmt('%d,%s,%d,%d', time[i], u, more, frac[i])
    else
      st.t, st.u, st.more, st.g, st.whole = num(time[i]), u, more, frac[i], whole[i]
    end
  end
  st.lo, st.hi, st.push, st.squeezed = 1, n - 1, false, true
end

-- changed drops all fractions, because a new refill applies from now on.
local function changed(st)
  local time, _, whole, frac, n = dips(st)
  st.all, st.f, st.rate, st.other = {}, 0, st.other, nil
  for i = 1, n do
    whole[i] = whole[i] - (frac[i] == 0 and 0 or 1)
    local more = whole[i] - whole[i - 1]
    if i < n then
      st.all[st.lo + i - 1] = fmt('%d,0,%d,0', time[i], more)
    else
      st.u, st.more, st.g, st.whole = '0', more, 0, whole[i]
    end
  end
end
