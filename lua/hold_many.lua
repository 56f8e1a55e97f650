-- hold_many: what hold does, for several calls in one run. Most of the time of a hold
-- goes into commands, not into what they do: here TIME, the limits that calls share
-- and the records of an org are read and written once.
-- Libraries: time, shapes, the shape_ libraries, shape_of.
--
-- Calls are carried out in their order, each sees those before it, each for itself: a
-- call that does not fit takes nothing. Whatever needs more than the plain way (it does
-- not fit, even in the shadow, a calendar has run out, or the org's mark is another) is "alone": nothing was done,
-- hold is to be run for it by itself.
--
-- KEYS  per org: holds, leases, done, mark as in hold, then the state keys of its limits
-- ARGV  1 now (empty: Redis TIME)  2 number of orgs
--       per org: lease us, lifetime ms, mark, number of limits, number of calls, number
--         of limits of each call;  per limit: kind, p1, p2;  the ids of the calls, each once;
--         per call: amounts and meta as in hold, per limit of it: its number among the
--         org's, amount, cost
-- Reply a list: per call what hold replies, or "alone"

local K, A = KEYS, ARGV
local now = now_us(A[1])
local at, out = num(now), {}
local k, a = 0, 2 -- before the next of KEYS and ARGV
local shapes, states, touched, each
local which, costs = {}, {} -- of the call that is looked at

-- fits reports whether all limits of a call have room for it.
local function fits()
  for j = 1, each do
    local p = a + 3 * j
    local n, cost = A[p] + 0, A[p + 2] + 0
    local st = states[n]
    if not st or st.partial or st.used + cost - A[p + 1] > 0 then return false end
    which[j], costs[j] = n, cost
  end
  return true
end

-- held charges a call and returns its record and its reply.
local function held(id)
  local record, text = at .. ',' .. A[a + 1] .. '|', 'held,' .. at
  for j = 1, each do
    local n, cost = which[j], A[a + 3 * j + 2]
    local s, st = shapes[n], states[n]
    record = record .. (j == 1 and '' or ';') .. cost .. ' ' .. s.charge(st, costs[j], id, 1, true) .. ':' .. cost
    text = text .. ';' .. s.text(st)
    touched[n] = true
  end
  return record .. '|' .. A[a + 2], text
end

for _ = 1, A[2] + 0 do
  local lease, life, limits, calls = A[a + 1], A[a + 2], A[a + 4] + 0, A[a + 5] + 0
  local marked = call('GET', K[k + 4]) == A[a + 3]
  each, shapes, states, touched = A[a + 6] + 0, {}, {}, {}
  local first = a + 6 -- before the limits
  for i = 1, limits do
    local p = first + 3 * i
    shapes[i] = shape_of(A[p - 2])
    states[i] = shapes[i].read(K[k + 4 + i], A[p - 1], A[p], now) or false
  end
  local ids = first + 3 * limits -- before the ids
  local done = call('HMGET', K[k + 3], unpack(A, ids + 1, ids + calls))
  local open = call('HMGET', K[k + 1], unpack(A, ids + 1, ids + calls))
  local ends, records, leases, n = num(now + lease), {}, {}, 0
  a = ids + calls
  for i = 1, calls do
    local reply = 'alone'
    if done[i] then
      reply = 'done,' .. at
    elseif open[i] then
      reply = 'again,' .. at
    elseif marked and fits() then
      local id = A[ids + i]
      records[n + 1], leases[n + 1], leases[n + 2] = id, ends, id
      records[n + 2], reply = held(id)
      n = n + 2
    end
    out[#out + 1] = reply
    a = a + 2 + 3 * each
  end

  if n > 0 then
    -- First write, refused by Redis when memory is full, or when this key, the only one not
    -- read yet, is of another type: then nothing is held.
    call('ZADD', K[k + 2], unpack(leases))
    call('HSET', K[k + 1], unpack(records))
    if call('PTTL', K[k + 1]) - life < -DAY_MS then -- as in hold
      call('PEXPIRE', K[k + 1], life)
      call('PEXPIRE', K[k + 2], life)
    end
    for i = 1, limits do
      local p = first + 3 * i
      if touched[i] then shapes[i].write(states[i], K[k + 4 + i], A[p - 1], A[p]) end
    end
  end
  k = k + 4 + limits
end
return out
