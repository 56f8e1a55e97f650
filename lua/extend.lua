-- extend: grows an open hold to new totals, all limits or none. Idempotent: a
-- total that is already held changes nothing. What is added counts from now.
-- Libraries: time, shapes.
--
-- KEYS  1 holds  2.. one state key per limit, as in hold
-- ARGV  1 now  2 id  3 "max cost,expected cost,max tokens,expected tokens"
--       4 lifetime of KEYS 1 in ms  5.. per limit: kind, enforce 0|1, amount, new total, p1, p2
-- Reply as hold; verdict: held | refused | gone (no such open hold) | skew | stale

local now = now_us(ARGV[1])
local id, n = ARGV[2], #KEYS - 1

local record = call('HGET', KEYS[1], id)
if not record then return 'gone,' .. num(now) end
local at, amounts, parts, meta = record:match('^(%d+),([^|]*)|([^|]*)|(.*)$')

local shapes, states, more, over, texts, refused, stale = {}, {}, {}, {}, {}, false, false
local i = 0
for text in (parts .. ';'):gmatch('([^;]*);') do
  i = i + 1
  if i > n then break end
  local a = i * 6 - 1
  local s = whole(ARGV[a])
  local st = s.read(KEYS[i + 1], ARGV[a + 4], ARGV[a + 5], now)
  if not st then return 'skew,' .. num(now) end
  more[i] = max(ARGV[a + 3] - (text:match('^%d+') or 0), 0)
  over[i] = more[i] > 0 and st.used + more[i] - ARGV[a + 2] or 0
  if over[i] > 0 and ARGV[a + 1] == '1' then refused = true end
  if st.partial then
    stale = true
    s.write(st, KEYS[i + 1], ARGV[a + 4], ARGV[a + 5])
  end
  shapes[i], states[i], texts[i] = s, st, text
end
if i < n then return redis.error_reply('ERR extend: the hold has fewer limits than the call') end
if stale then return 'stale,' .. num(now) end

-- grow adds `n` to a limit's parts, to the last part when it is the same place.
local function grow(s, st, text, n)
  local had, list = text:match('^(%d+)(.*)$')
  local head, place, amount = list:match('^(.*) (%S+):(%d+)$')
  local _, nth = list:gsub(':', '')
  local merged = s.merge and s.merge(st, place, n)
  if merged then
    list = head .. ' ' .. merged .. ':' .. num(amount + n)
  else
    list = list .. ' ' .. s.charge(st, n, id, nth + 1, true) .. ':' .. num(n)
  end
  return num(had + n) .. list
end

-- A hold none of whose limits counts cost or tokens grows in its record alone.
local cost, tokens = amounts:match('^(%d+),%d+,(%d+)')
local new_cost, new_tokens = ARGV[3]:match('^(%d+),%d+,(%d+)')
local grown, any = {}, new_cost - cost > 0 or new_tokens - tokens > 0
for i = 1, n do
  if more[i] > 0 then grown[i], any = true, true end
end
if not refused and any then
  call('PEXPIRE', KEYS[1], ARGV[4]) -- first write, never refused for memory: the call is under way
  for i in pairs(grown) do texts[i] = grow(shapes[i], states[i], texts[i], more[i]) end
  call('HSET', KEYS[1], id, at .. ',' .. ARGV[3] .. '|' .. table.concat(texts, ';') .. '|' .. meta)
  for i in pairs(grown) do
    shapes[i].write(states[i], KEYS[i + 1], ARGV[i * 6 + 3], ARGV[i * 6 + 4])
  end
end

local out = (refused and 'refused,' or 'held,') .. num(now)
for i = 1, n do
  local st = states[i]
  out = out .. row(st, over[i], shapes[i].look(st, KEYS[i + 1], ARGV[i * 6 + 3], max(over[i], 0)))
end
return out
