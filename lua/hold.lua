-- hold: all limits of one call at once, all or nothing, idempotent on the id.
-- Libraries: time, shapes.
--
-- KEYS  1 holds (HASH id -> record)   2 leases (ZSET id by end)
--       3 done (HASH id -> tombstone) 4.. one state key per limit
-- ARGV  1 now (empty: Redis TIME)  2 id  3 lease us  4 lifetime of KEYS 1, 2 in ms
--       5 "max cost,expected cost,max tokens,expected tokens"  6 meta (opaque)
--       7.. per limit: kind, enforce 0|1, amount, cost, p1, p2
-- Record: "<at>,<ARGV 5>|<limit>;<limit>..|<meta>", a limit "<charged> <place>:<amount>.."
-- Reply "<verdict>,<at>" and per limit ";<state as written>"; or, when it did not fit
--       or was held before, ";=<used>,<held>,<resets>,<frees>,<refused 0|1>".
--       verdict: held | again (it was held before) | refused | done | skew

local K, A = KEYS, ARGV
local now = now_us(A[1])
local at, id, n = num(now), A[2], #K - 3

if call('HEXISTS', K[3], id) == 1 then return 'done,' .. at end

local states, refused = {}, false
local function read_all()
  for i = 1, n do
    local a = 1 + i * 6
    local st = shape_of(A[a]).read(K[i + 3], A[a + 4], A[a + 5], now)
    if not st then return false end
    st.over = st.used + A[a + 3] - A[a + 2]
    if st.over > 0 and A[a + 1] == '1' then refused = true end
    states[i] = st
  end
  return true
end

local function row(i, st)
  local resets, frees = whole(A[1 + i * 6]).look(st, max(st.over, 0))
  return fmt(';=%d,%d,%d,%d,%d', st.used, st.held, resets, frees, st.over > 0 and 1 or 0)
end

-- unheld replies without having held. What was held before is not in the way of
-- itself.
local function unheld(verdict)
  local out = verdict .. ',' .. at
  if verdict == 'again' then read_all() end
  for i = 1, n do
    if verdict == 'again' then states[i].over = 0 end
    if (states[i].stale or 0) > 100 then shape_of(A[1 + i * 6]).write(states[i]) end
    out = out .. row(i, states[i])
  end
  return out
end

if not read_all() then return 'skew,' .. at end
if refused then return unheld(call('HEXISTS', K[1], id) == 1 and 'again' or 'refused') end

local record = at .. ',' .. A[5] .. '|'
for i = 1, n do
  local cost = A[4 + i * 6]
  local place = shape_of(A[1 + i * 6]).charge(states[i], tonumber(cost), id, 1, true)
  record = record .. (i > 1 and ';' or '') .. cost .. ' ' .. place .. ':' .. cost
end

-- First write, refused by Redis when memory is full: then nothing is held.
if call('HSETNX', K[1], id, record .. '|' .. A[6]) == 0 then return unheld('again') end
call('ZADD', K[2], num(now + A[3]), id)

if call('HLEN', K[1]) == 1 then -- a new key; renew prolongs its life
  call('PEXPIRE', K[1], A[4])
  call('PEXPIRE', K[2], A[4])
end
local out = 'held,' .. at
for i = 1, n do
  local st = states[i]
  local text = shape_of(A[1 + i * 6]).write(st)
  out = out .. (st.over > 0 and row(i, st) or ';' .. text)
end
return out
