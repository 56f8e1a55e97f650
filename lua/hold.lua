-- hold: all limits of one call at once, all or nothing, idempotent on the id.
-- Libraries: time, shapes.
--
-- KEYS  1 holds (HASH id -> record)   2 leases (ZSET id by end)
--       3 done (HASH id -> tombstone) 4.. one state key per limit
-- ARGV  1 now (empty: Redis TIME)  2 id  3 lease us  4 lifetime of KEYS 1, 2 in ms
--       5 "max cost,expected cost,max tokens,expected tokens"  6 meta (opaque)
--       7.. per limit: kind, enforce 0|1, amount, cost, p1, p2
-- Record: "<at>,<ARGV 5>|<limit>;<limit>..|<meta>", a limit "<charged> <place>:<amount>.."
-- Reply "<verdict>,<at>,<earliest lease end or 0>" and per limit
--       ";<used>,<held>,<resets>,<frees>,<refused>", all after the hold when held.
--       verdict: held | again (it was held before) | refused | done | skew

local now = now_us(ARGV[1])
local id, n = ARGV[2], #KEYS - 3

if call('HEXISTS', KEYS[3], id) == 1 then
  return 'done,' .. int(now) .. ',0'
end

local shapes, states, costs, refused = {}, {}, {}, false
for i = 1, n do
  local a = 1 + i * 6
  local s = shape_of(ARGV[a])
  local st = s.read(KEYS[i + 3], ARGV[a + 4], ARGV[a + 5], now)
  if not st then return 'skew,' .. int(now) .. ',0' end
  local cost = tonumber(ARGV[a + 3])
  st.over = st.used + cost - ARGV[a + 2]
  if st.over > 0 and ARGV[a + 1] == '1' then refused = true end
  shapes[i], states[i], costs[i] = s, st, cost
end

local verdict = 'held'
local first = call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
if refused then
  verdict = 'refused'
  if call('HEXISTS', KEYS[1], id) == 1 then
    verdict = 'again'
    for i = 1, n do states[i].over = 0 end
  end
  for i = 1, n do
    if (states[i].stale or 0) > 100 then shapes[i].write(states[i]) end
  end
else
  local parts = {}
  for i = 1, n do
    parts[i] = int(costs[i]) .. ' ' .. shapes[i].charge(states[i], costs[i], id, 1, true) .. ':' .. int(costs[i])
  end
  -- First write, refused by Redis when memory is full: then nothing is held.
  local new = call('HSETNX', KEYS[1], id, int(now) .. ',' .. ARGV[5] .. '|' .. table.concat(parts, ';') .. '|' .. ARGV[6])
  if new == 1 then
    local ends = now + ARGV[3]
    call('ZADD', KEYS[2], int(ends), id)
    for i = 1, n do shapes[i].write(states[i]) end
    if not first[1] then
      first = { id, ends }
      call('PEXPIRE', KEYS[1], ARGV[4])
      call('PEXPIRE', KEYS[2], ARGV[4])
    end
  else
    verdict = 'again'
    for i = 1, n do
      local a = 1 + i * 6
      states[i] = shapes[i].read(KEYS[i + 3], ARGV[a + 4], ARGV[a + 5], now)
      states[i].over = 0
    end
  end
end

local out = { verdict .. ',' .. int(now) .. ',' .. int(tonumber(first[2] or 0)) }
for i = 1, n do
  local st = states[i]
  local excess = max(st.over, 0)
  if verdict == 'held' and excess == 0 then excess = nil end
  local resets, frees = shapes[i].look(st, excess)
  out[i + 1] = fmt('%.0f,%.0f,%.0f,%.0f,%d', st.used, st.held, resets, frees, st.over > 0 and 1 or 0)
end
return table.concat(out, ';')
