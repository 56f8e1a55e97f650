-- Part of shape_bucket: gives back from - to at place when there are later dips.

local function put(st, i, t, u, more, g)
  local text = fmt('%s,%s,%d,%d', t, u, more, g)
  if st.all then st.all[i] = text else call('HSET', st.key, num(i), text) end
end

-- first returns the index of the first dip after a time, and its value; the index newest + 1 is the
-- last dip.
local function first(st, place)
  local lo, hi = st.lo, st.hi
  local i, value, less, g = hi + 1, st.whole, st.more, st.g + 0
  if lo > hi then return i, value, g end
  local t, _, more, f = field(st, lo)
  local low = more + 0
  if t + 0 > place then return lo, low, f + 0 end
  if place - t > st.t - place then -- closer to the last one
    for k = hi, lo + 1, -1 do
      t, _, more, f = field(st, k)
      if t + 0 <= place then break end
      i, value, less, g = k, value - less, more, f + 0
    end
    return i, value, g
  end
  for k = lo + 1, hi do
    t, _, more, f = field(st, k)
    low = low + more
    if t + 0 > place then return k, low, f + 0 end
  end
  return i, value, g
end

-- cut removes the dips between j and i by moving whichever are fewer, those before or those after.
local function cut(st, j, i)
  local by, args, gone = i - 1 - j, {}, {}
  local function move(k, to)
    if st.all then
      st.all[to] = st.all[k]
    else
      args[#args + 1], args[#args + 2] = num(to), call('HGET', st.key, num(k))
    end
  end
  if j - st.lo < st.hi - i then
    for k = j, st.lo, -1 do move(k, k + by) end
    for k = st.lo, st.lo + by - 1 do gone[#gone + 1] = num(k) end
    call('HDEL', st.key, unpack(gone))
    st.lo = st.lo + by
  else
    for k = i, st.hi do move(k, k - by) end
    st.hi = st.hi - by
  end
  if #args > 0 then call('HSET', st.key, unpack(args)) end
end

-- lower subtracts n from dip i, whose value was `value`, and from all after it, and drops the ones
-- before that are not below it.
local function lower(st, i, n, value)
  if i > st.hi then return sink(st, st.whole - n) end
  st.whole = st.whole - n
  local t, u, more, g = field(st, i)
  local j, low, left = i - 1, value - more, value - n
  while j >= st.lo do
    local _, _, step, f = field(st, j)
    if low < left or low == left and f + 0 > g + 0 then break end
    j, low = j - 1, low - step
  end
  put(st, i, t, u, left - low, g)
  if j < i - 1 then cut(st, j, i) end
end

-- finer subtracts a fraction from dip i, from those after it, and from what is used.
local function finer(st, i, less, p)
  local before = 0
  local function take(f)
    if f < less then return f - less + p, 1 end
    return f - less, 0
  end
  for k = i, st.hi do
    local t, u, more, f = field(st, k)
    local g, up = take(f + 0)
    put(st, k, t, u, more + up - before, g)
    before = up
  end
  local up
  st.g, up = take(st.g + 0)
  st.whole, st.more = st.whole + up, st.more + up - before
  st.f, up = take(st.f)
  st.used = st.used + up
end

local wanted = from - to
local i, least, g = first(st, place + 0)
local low = least - (g > 0 and 1 or 0)
local minus = low < wanted and least or wanted -- down to zero, including the fraction
st.used = st.used - minus
lower(st, i, minus, least)
if low < wanted then
  if g > 0 then finer(st, st.lo, g, st.rate:match('%d+$') + 0) end
  back = max(low, 0)
else
  back = wanted
end
