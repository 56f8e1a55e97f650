-- hold: all limits of one call at once, all or nothing, idempotent on the id.
-- Libraries: time, shapes.
--
-- KEYS  1 holds (HASH id -> record)   2 leases (ZSET id by end)
--       3 done (HASH id -> tombstone) 4.. one state key per limit
-- ARGV  1 now (empty: Redis TIME)  2 id  3 lease us  4 lifetime of KEYS 1, 2 in ms
--       5 "max cost,expected cost,max tokens,expected tokens"  6 meta (opaque)
--       7.. per limit: kind, enforce 0|1, amount, cost, p1, p2
-- Record: "<at>,<ARGV 5>|<limit>;<limit>..|<meta>", a limit "<charged> <place>:<amount>.."
-- Reply "held,<at>" and per limit ";<state as written>", or as for refused when a
--       limit in the shadow did not fit
--       "refused,<at>" and per limit ";=<used>,<held>,<resets>,<frees>,<refused 0|1>"
--       "again,<at>" it is held already | "done,<at>" it has ended | "skew,<at>"

local K, A = KEYS, ARGV
local now = now_us(A[1])
local at, id, n = num(now), A[2], #K - 3

if call('HEXISTS', K[3], id) == 1 then return 'done,' .. at end

local states, refused = {}, false
for i = 1, n do
  local a = 1 + i * 6
  local st = shape_of(A[a]).read(K[i + 3], A[a + 4], A[a + 5], now)
  if not st then return 'skew,' .. at end
  st.over = st.used + A[a + 3] - A[a + 2]
  if st.over > 0 and A[a + 1] == '1' then refused = true end
  states[i] = st
end

if refused then
  -- What was held before is not in the way of itself.
  if call('HEXISTS', K[1], id) == 1 then return 'again,' .. at end
  local out = 'refused,' .. at
  for i = 1, n do
    local a, st = 1 + i * 6, states[i]
    local s = whole(A[a])
    if (st.stale or 0) > 100 then s.write(st, K[i + 3], A[a + 4], A[a + 5]) end
    out = out .. row(st, s.look(st, K[i + 3], A[a + 4], max(st.over, 0)))
  end
  return out
end

local record = at .. ',' .. A[5] .. '|'
for i = 1, n do
  local cost = A[4 + i * 6]
  if i > 1 then record = record .. ';' end
  record = record .. cost .. ' ' .. shape_of(A[1 + i * 6]).charge(states[i], cost + 0, id, 1, true) .. ':' .. cost
end

-- First write, refused by Redis when memory is full: then nothing is held.
if call('HSETNX', K[1], id, record .. '|' .. A[6]) == 0 then return 'again,' .. at end
call('ZADD', K[2], num(now + A[3]), id)
if call('HLEN', K[1]) == 1 then -- a new key; renew prolongs its life
  call('PEXPIRE', K[1], A[4])
  call('PEXPIRE', K[2], A[4])
end

local out = 'held,' .. at
for i = 1, n do
  local a, st = 1 + i * 6, states[i]
  local text = shape_of(A[a]).write(st, K[i + 3], A[a + 4], A[a + 5])
  if st.over > 0 then
    out = out .. row(st, whole(A[a]).look(st, K[i + 3], A[a + 4], st.over))
  else
    out = out .. ';' .. text
  end
end
return out
