-- settle_many: what settle does, for several calls in one run, as hold_many for hold.
-- Libraries: time, shapes, the shape_ libraries, shape_of, roll.
--
-- What is not an open hold that was never extended is "alone": nothing was done,
-- settle is to be run for it by itself.
--
-- KEYS  per org: leases, holds, done, ledger, three days of roll-ups and of their hours as in
--       ending, then the state keys of its limits
-- ARGV  1 now (empty: Redis TIME)  2 number of orgs
--       per org: day number of the first roll-ups, lifetime of done in ms, most fields
--         of a day, ledger length, lifetimes of ledger and roll-ups in ms, number of
--         limits, number of calls, number of limits of each call;  per limit: kind, p1, p2;
--         the ids of the calls, each once;
--         per call: cost, estimated 0|1, roll-up field, ledger entry as in ending, the nine
--         tokens and costs, per limit of it: its number among the org's, want
-- Reply a list: per call what settle replies, or "alone"

local K, A = KEYS, ARGV
local now = now_us(A[1])
local at, out = num(now), {}
local k, a = 0, 2 -- before the next of KEYS and ARGV
local o, first, each -- before the arguments of the org and of its limits
local shapes, states, touched
local rolled -- the day and its hours: { key, before the fields, lifetime in ms, lines }
local which, places, amounts, most -- per limit of each call; per call

-- plain reports whether a call's record is an open hold on these limits, as it was
-- taken, and notes what is charged where.
local function plain(record, i)
  local pos
  most[i], pos = record:match('^%d+,(%d+)[^|]*()|')
  local x = (i - 1) * each
  for j = 1, each do
    local n = A[a + 12 + 2 * j] + 0
    if not pos or not states[n] then return false end
    local had, part
    had, places[x + j], part, pos = record:match(j == 1 and '^|(%d+) ([^ :]+):(%d+)()' or '^;(%d+) ([^ :]+):(%d+)()', pos)
    if part ~= had then return false end
    which[x + j], amounts[x + j] = n, had
  end
  return pos and record:byte(pos) == 124 and (each > 0 or record:byte(pos + 1) == 124) -- |
end

-- regrade moves a limit of a call from what it has charged to what it wants.
local function regrade(n, id, place, had, want)
  local p = first + 3 * n
  local s, key = shapes[n], K[k + 10 + n]
  local st = states[n] or s.read(key, A[p - 1], A[p], now)
  s.change(st, key, place, had, min(had, want), true, id, 1)
  if want > had then s.charge(st, want - had, id, 'o', false) end
  if A[p - 2] == 'w' or A[p - 2] == 'c' then
    touched[n] = true -- written once, for all
  else
    s.write(st, key, A[p - 1], A[p])
    states[n] = false
  end
end

-- add adds a call to a line of the day or of the hour. New lines, and the one that sums
-- what a full hash has no room for, are written at once. It returns true for a new line.
local function add(to, subject, u, cost, estimated, overrun)
  local key, hour, sums = to[1], to[2], to[4]
  local field = hour .. subject
  local s = sums[field]
  if s == nil then
    local old = field:sub(-3) ~= '||*' and call('HGET', key, field)
    s = old and { old:match(SUMS) }
    sums[field] = s
  end
  if not s then return roll_line(key, hour, subject, A[o + 3], to[3], u, cost, 1, estimated, overrun, 0) end
  s[1], s[2], s[12], s[13] = s[1] + cost, s[2] + 1, s[12] + estimated, s[13] + overrun
  for i = 0, 8 do
    if A[u + i] ~= '0' then s[3 + i] = s[3 + i] + A[u + i] end
  end
end

for _ = 1, A[2] + 0 do
  o, shapes, states, touched, which, places, amounts, most = a, {}, {}, {}, {}, {}, {}, {}
  local limits, calls = A[o + 7] + 0, A[o + 8] + 0
  local day = floor(now / 86400000000) - A[o + 1]
  each, first = A[o + 9] + 0, o + 9
  rolled = { { K[k + 5 + day], '', A[o + 6], {} }, { K[k + 8 + day], hour_of(now), HOURS_MS, {} } }
  for i = 1, limits do
    local p = first + 3 * i
    shapes[i] = whole(A[p - 2])
    states[i] = shapes[i].read(K[k + 10 + i], A[p - 1], A[p], now) or false
  end
  local ids = first + 3 * limits
  local records = call('HMGET', K[k + 2], unpack(A, ids + 1, ids + calls))
  local from, stride, ends, gone, tombs = ids + calls, 13 + 2 * each, {}, {}, {}
  a = from
  for i = 1, calls do
    if records[i] and day >= 0 and day <= 2 and plain(records[i], i) then
      ends[i], gone[#gone + 1] = true, A[ids + i]
    end
    a = a + stride
  end

  if #gone > 0 then
    call('XLEN', K[k + 4]) -- of another type, they fail before anything is written
    for j = 1, 2 do call('HLEN', rolled[j][1]) end
    call('ZREM', K[k + 1], unpack(gone)) -- first write, never refused for memory
    local c, x, t = from, 0, 0
    for i = 1, calls do
      if ends[i] then
        local id, overrun = A[ids + i], max(A[c + 1] - most[i], 0)
        for j = 1, each do
          regrade(which[x + j], id, places[x + j], amounts[x + j] + 0, A[c + 13 + 2 * j] + 0)
        end
        ends[i] = overrun > 0 and num(overrun) or '0'
        tombs[t + 1], tombs[t + 2], t = id, 'S,' .. A[c + 1] .. ',' .. ends[i] .. ',' .. at, t + 2
      end
      c, x = c + stride, x + each
    end
    for i = 1, limits do
      local p = first + 3 * i
      if touched[i] then shapes[i].write(states[i], K[k + 10 + i], A[p - 1], A[p]) end
    end
    call('HDEL', K[k + 2], unpack(gone))
    call('HSET', K[k + 3], unpack(tombs))
    if call('PTTL', K[k + 3]) - A[o + 2] < -600000 then call('PEXPIRE', K[k + 3], A[o + 2]) end
  end

  for i = 1, calls do
    local c, reply = from + (i - 1) * stride, 'alone'
    if ends[i] then
      local cost, more = A[c + 1], ends[i]
      if A[c + 4] ~= '' then
        call('XADD', K[k + 4], 'MAXLEN', '~', A[o + 4], '*', 'e', A[c + 4] .. ',"kind":"settle","at_us":' .. at ..
          ',"cost_nano":' .. cost .. ',"total_nano":' .. cost .. ',"overrun_nano":' .. more .. '}')
        local estimated = A[c + 2] == '1' and cost + 0 or 0
        add(rolled[2], A[c + 3], c + 5, cost + 0, estimated, more + 0)
        if add(rolled[1], A[c + 3], c + 5, cost + 0, estimated, more + 0) then
          call('PEXPIRE', K[k + 4], A[o + 5]) -- once a day at least
        end
      end
      reply = 'settled,' .. at .. ',' .. cost .. ',' .. more .. ',0,' .. at
    end
    out[#out + 1] = reply
  end
  for j = 1, 2 do
    local lines, n = {}, 0
    for field, s in pairs(rolled[j][4]) do
      if s then lines[n + 1], lines[n + 2], n = field, fmt(SUMS_FORMAT, unpack(s)), n + 2 end
    end
    if n > 0 then call('HSET', rolled[j][1], unpack(lines)) end
  end
  k = k + 10 + limits
end
return out
