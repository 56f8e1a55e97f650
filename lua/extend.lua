-- extend: grows an open hold to new totals, all limits or none. Idempotent: a total that is already
-- held changes nothing. The addition counts from now.
-- Libraries: time, shapes, shape_of, whole.
--
-- KEYS  1 holds  2.. one state key per limit, as in hold
-- ARGV  1 now  2 id  3 "max cost,expected cost,max tokens,expected tokens"
--       4 lifetime of KEYS 1 in ms  5.. per limit: kind, enforce 0|1, amount, new total, p1, p2
-- Reply as hold; verdict: held | refused | gone (no such open hold) | skew | stale

local holds = KEYS[1]
local given, id, new_amounts, life = unpack(ARGV, 1, 4)
local now = now_us(given)

local record = call('HGET', holds, id)
if not record then return 'gone,' .. num(now) end
local at, amounts, parts, meta = record:match('^(%d+),([^|]*)|([^|]*)|(.*)$')
local texts = {}
for text in (parts .. ';'):gmatch('([^;]*);') do texts[#texts + 1] = text end

-- `more` is what a limit has to hold in addition, and `over` by how much that exceeds its amount.
local limits = {}
local refused, stale = false, false
for i = 1, #KEYS - 1 do
  local key, text = KEYS[1 + i], texts[i]
  local kind, enforced, amount, total, p1, p2 = unpack(ARGV, 6 * i - 1, 6 * i + 4)
  if not text then return redis.error_reply('ERR extend: the hold has fewer limits than the call') end
  local shape = whole(kind)
  local state = shape.read(key, p1, p2, now)
  if not state then return 'skew,' .. num(now) end
  local more = max(total - (text:match('^%d+') or 0), 0)
  local over = more > 0 and state.used + more - amount or 0
  if over > 0 and enforced == '1' then refused = true end
  if state.partial then
    stale = true
    shape.write(state, key, p1, p2)
  end
  limits[i] = { key = key, shape = shape, p1 = p1, p2 = p2, state = state, more = more, over = over }
end
if stale then return 'stale,' .. num(now) end

-- grow adds what a limit has to hold in addition to its text, merging it into the last part if it
-- has the same place.
local function grow(limit, text)
  local shape, state, more = limit.shape, limit.state, limit.more
  local had, list = text:match('^(%d+)(.*)$')
  local head, place, amount = list:match('^(.*) (%S+):(%d+)$')
  local _, nth = list:gsub(':', '')
  local merged = shape.merge and shape.merge(state, place, more)
  if merged then
    list = head .. ' ' .. merged .. ':' .. num(amount + more)
  else
    list = list .. ' ' .. shape.charge(state, more, id, nth + 1, true) .. ':' .. num(more)
  end
  return num(had + more) .. list
end

-- If none of the hold's limits counts cost or tokens, only its record grows.
local cost, tokens = amounts:match('^(%d+),%d+,(%d+)')
local new_cost, new_tokens = new_amounts:match('^(%d+),%d+,(%d+)')
local any = new_cost - cost > 0 or new_tokens - tokens > 0
for _, limit in ipairs(limits) do any = any or limit.more > 0 end
if not refused and any then
  call('PEXPIRE', holds, life) -- first write, never refused for lack of memory, because the call is running
  for i, limit in ipairs(limits) do
    if limit.more > 0 then texts[i] = grow(limit, texts[i]) end
  end
  call('HSET', holds, id, at .. ',' .. new_amounts .. '|' .. table.concat(texts, ';', 1, #limits) .. '|' .. meta)
  for _, limit in ipairs(limits) do
    if limit.more > 0 then limit.shape.write(limit.state, limit.key, limit.p1, limit.p2) end
  end
end

local out = (refused and 'refused,' or 'held,') .. num(now)
for _, limit in ipairs(limits) do
  local state, over = limit.state, limit.over
  out = out .. row(state, over, limit.shape.look(state, limit.key, limit.p1, max(over, 0)))
end
return out
