-- settle_many: what settle does, for several calls in one run, as hold_many for hold.
-- Libraries: time, shapes, the shape_ libraries, shape_of, roll.
--
-- What is not an open hold that was never extended is "alone": nothing was done,
-- settle is to be run for it by itself.
--
-- KEYS  per org: leases, holds, done, ledger and three days of roll-ups as in ending,
--       then the state keys of its limits
-- ARGV  1 now (empty: Redis TIME)  2 number of orgs
--       per org: day number of the first roll-ups, lifetime of done in ms, most fields
--         of a day, ledger length, lifetimes of ledger and roll-ups in ms, number of
--         limits, number of calls;  per limit: kind, p1, p2;  the ids of the calls;
--         per call: cost, estimated 0|1, roll-up field, the nine tokens and costs, ledger
--         entry as in ending, number of limits, per limit of it: its number among the
--         org's, want
-- Reply a list: per call what settle replies, or "alone"

local K, A = KEYS, ARGV
local now = now_us(A[1])
local at, out = num(now), {}
local k, a = 0, 2 -- before the next of KEYS and ARGV

-- plain returns the places of a call whose record is an open hold on these limits, as it
-- was taken, with what was charged there and its most cost.
local function plain(record, a, states)
  local most, pos = record:match('^%d+,(%d+)[^|]*()|')
  local n, places = A[a + 14] + 0, {}
  for i = 1, n do
    if not pos or not states[A[a + 13 + 2 * i] + 0] then return nil end
    local had, place, part
    had, place, part, pos = record:match(i == 1 and '^|(%d+) ([^ :]+):(%d+)()' or '^;(%d+) ([^ :]+):(%d+)()', pos)
    if part ~= had then return nil end
    places[2 * i - 1], places[2 * i] = place, had + 0
  end
  if not pos or record:byte(pos) ~= 124 or n == 0 and record:byte(pos + 1) ~= 124 then return nil end -- |
  places.most = most
  return places
end

for _ = 1, A[2] + 0 do
  local o = a -- before what concerns the org
  local limits, calls = A[o + 7] + 0, A[o + 8] + 0
  local day = floor(now / 86400000000) - A[o + 1]
  local shapes, states, touched, ends, gone, tombs, sums = {}, {}, {}, {}, {}, {}, {}
  local first = o + 8
  local function limit(i) return K[k + 7 + i], A[first + 3 * i - 1], A[first + 3 * i] end
  for i = 1, limits do
    shapes[i] = whole(A[first + 3 * i - 2])
    local key, p1, p2 = limit(i)
    states[i] = shapes[i].read(key, p1, p2, now) or false
  end
  local ids = first + 3 * limits
  local records = call('HMGET', K[k + 2], unpack(A, ids + 1, ids + calls))
  local from = ids + calls
  a = from
  for i = 1, calls do
    local id = A[ids + i]
    if records[i] and not ends[id] and day >= 0 and day <= 2 then
      ends[i] = plain(records[i], a, states)
      if ends[i] then ends[id], gone[#gone + 1] = true, id end
    end
    a = a + 14 + 2 * A[a + 14]
  end

  -- regrade moves a limit of a call from what it has charged to what it wants.
  local function regrade(n, id, place, had, want)
    local key, p1, p2 = limit(n)
    local s = shapes[n]
    local st = states[n] or s.read(key, p1, p2, now)
    s.change(st, key, place, had, min(had, want), true, id, 1)
    if want > had then s.charge(st, want - had, id, 'o', false) end
    local kind = A[first + 3 * n - 2]
    if kind == 'w' or kind == 'c' then
      touched[n] = true -- written once, for all
    else
      s.write(st, key, p1, p2)
      states[n] = false
    end
  end

  -- add adds a call to a line of the day. New lines, and the one that sums what a full
  -- day has no room for, are written at once.
  local function add(field, u, cost, estimated, overrun)
    local s = sums[field]
    if s == nil then
      local old = field:sub(-3) ~= '||*' and call('HGET', K[k + 5 + day], field)
      s = old and { old:match(SUMS) }
      sums[field] = s
    end
    if not s then
      if roll(K[k + 5 + day], field, A[o + 3], A[o + 6], u, cost, 1, estimated, overrun, 0) then
        call('PEXPIRE', K[k + 4], A[o + 5]) -- once a day at least
      end
      return
    end
    s[1], s[2], s[12], s[13] = s[1] + cost, s[2] + 1, s[12] + estimated, s[13] + overrun
    for i = 0, 8 do
      if A[u + i] ~= '0' then s[3 + i] = s[3 + i] + A[u + i] end
    end
  end

  if #gone > 0 then
    call('ZREM', K[k + 1], unpack(gone)) -- first write, never refused for memory
    local c = from
    for i = 1, calls do
      local places = ends[i]
      if places then
        for j = 1, A[c + 14] + 0 do
          regrade(A[c + 13 + 2 * j] + 0, A[ids + i], places[2 * j - 1], places[2 * j], A[c + 14 + 2 * j] + 0)
        end
        places.overrun = max(A[c + 1] - places.most, 0)
        tombs[#tombs + 1], tombs[#tombs + 2] = A[ids + i], 'S,' .. A[c + 1] .. ',' .. num(places.overrun) .. ',' .. at
      end
      c = c + 14 + 2 * A[c + 14]
    end
    for i = 1, limits do
      if touched[i] then shapes[i].write(states[i], limit(i)) end
    end
    call('HDEL', K[k + 2], unpack(gone))
    call('HSET', K[k + 3], unpack(tombs))
    if call('PTTL', K[k + 3]) - A[o + 2] < -600000 then call('PEXPIRE', K[k + 3], A[o + 2]) end
  end

  local c = from
  for i = 1, calls do
    local places, reply = ends[i], 'alone'
    if places then
      local cost, more = A[c + 1], num(places.overrun)
      if A[c + 13] ~= '' then
        call('XADD', K[k + 4], 'MAXLEN', '~', A[o + 4], '*', 'e', A[c + 13] .. ',"kind":"settle","at_us":' .. at ..
          ',"cost_nano":' .. cost .. ',"total_nano":' .. cost .. ',"overrun_nano":' .. more .. '}')
        add(A[c + 3], c + 4, cost + 0, A[c + 2] == '1' and cost + 0 or 0, places.overrun)
      end
      reply = 'settled,' .. at .. ',' .. cost .. ',' .. more .. ',0,' .. at
    end
    out[#out + 1] = reply
    c = c + 14 + 2 * A[c + 14]
  end
  local lines = {}
  for field, s in pairs(sums) do
    if s then lines[#lines + 1], lines[#lines + 2] = field, fmt(SUMS_FORMAT, unpack(s)) end
  end
  if #lines > 0 then call('HSET', K[k + 5 + day], unpack(lines)) end
  k = k + 7 + limits
end
return out
