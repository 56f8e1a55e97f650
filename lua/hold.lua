-- hold: all limits of one call at once, all or nothing, idempotent on the id.
-- Libraries: time, shapes.
--
-- KEYS  1 holds (HASH id -> record)   2 leases (ZSET id by end)
--       3 done (HASH id -> tombstone) 4.. one state key per limit
-- ARGV  1 now (empty: Redis TIME)  2 id  3 lease us
--       4 lifetime of KEYS 1, 2 in ms, or empty: it was set within the lease
--       5 "max cost,expected cost,max tokens,expected tokens"  6 meta (opaque)
--       7.. per limit: kind, enforce 0|1, amount, cost, p1, p2
-- Record: "<at>,<ARGV 5>|<limit>;<limit>..|<meta>", a limit "<charged> <place>:<amount>.."
-- Reply "<verdict>,<at>,<earliest lease end, 0 when ARGV 4 is empty>" and per limit
--       ";<used>,<held>" after the hold; when it did not fit, or this was asked
--       before, ";<used>,<held>,<resets>,<frees>,<refused 0|1>".
--       verdict: held | again (it was held before) | refused | done | skew

local now = now_us(ARGV[1])
local at, id, n = num(now), ARGV[2], #KEYS - 3

if call('HEXISTS', KEYS[3], id) == 1 then return 'done,' .. at .. ',0' end
if ARGV[4] ~= '' and num(4503599627370497) ~= '4503599627370497' then
  return redis.error_reply('ERR llmguard needs a 64 bit redis-server')
end

local shapes, states, refused = {}, {}, false
local function read_all()
  for i = 1, n do
    local a = 1 + i * 6
    local s = shape_of(ARGV[a])
    local st = s.read(KEYS[i + 3], ARGV[a + 4], ARGV[a + 5], now)
    if not st then return false end
    st.over = st.used + ARGV[a + 3] - ARGV[a + 2]
    if st.over > 0 and ARGV[a + 1] == '1' then refused = true end
    shapes[i], states[i] = s, st
  end
  return true
end

local function rows(head, full)
  for i = 1, n do
    local st = states[i]
    if full or st.over > 0 then
      local resets, frees = shapes[i].look(st, max(st.over, 0))
      head = head .. fmt(';%d,%d,%d,%d,%d', st.used, st.held, resets, frees, st.over > 0 and 1 or 0)
    else
      head = head .. fmt(';%d,%d', st.used, st.held)
    end
  end
  return head
end

-- What was held before is not in the way of itself.
local function again()
  read_all()
  for i = 1, n do states[i].over = 0 end
  return rows('again,' .. at .. ',0', true)
end

if not read_all() then return 'skew,' .. at .. ',0' end

if refused then
  if call('HEXISTS', KEYS[1], id) == 1 then return again() end
  for i = 1, n do
    if (states[i].stale or 0) > 100 then shapes[i].write(states[i]) end
  end
  return rows('refused,' .. at .. ',0', true)
end

local parts = ''
for i = 1, n do
  local cost = ARGV[4 + i * 6]
  local place = shapes[i].charge(states[i], tonumber(cost), id, 1, true)
  parts = parts .. (i > 1 and ';' or '') .. cost .. ' ' .. place .. ':' .. cost
end

-- First write, refused by Redis when memory is full: then nothing is held.
local record = at .. ',' .. ARGV[5] .. '|' .. parts .. '|' .. ARGV[6]
if call('HSETNX', KEYS[1], id, record) == 0 then return again() end
call('ZADD', KEYS[2], num(now + ARGV[3]), id)
for i = 1, n do shapes[i].write(states[i]) end

local first = '0'
if ARGV[4] ~= '' then
  call('PEXPIRE', KEYS[1], ARGV[4])
  call('PEXPIRE', KEYS[2], ARGV[4])
  first = num(call('ZRANGE', KEYS[2], '0', '0', 'WITHSCORES')[2])
end
return rows('held,' .. at .. ',' .. first, false)
