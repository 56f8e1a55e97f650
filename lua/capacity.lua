-- Library: bytes that callers store in one place, by org and in total. Needs time.lua.
-- KEYS 1 entries: hash, id -> "<org> <bytes reserved> <bytes written>"
--      2 their ends: sorted set, id by time us
--      3 sums: hash, "o <org>" of its entries, all of all, written without what is only
--        reserved; the other fields are other counts of what is in the same place
-- An entry ends with what it counts. Small items that are not removed before they expire are
-- counted together by org and hour, in an entry "@<end us> <org>".
local call = redis.call
local entries, ends, sums = KEYS[1], KEYS[2], KEYS[3]

-- entry_of returns the org of an entry and its bytes reserved and written; nil, 0, 0 if there is
-- none.
local function entry_of(id)
  local org, reserved, written = string.match(call('HGET', entries, id) or '', '^(%S+) (%d+) (%d+)$')
  return org, tonumber(reserved or 0), tonumber(written or 0)
end

local function sum_add(field, n)
  if n ~= 0 and call('HINCRBY', sums, field, int(n)) <= 0 then call('HDEL', sums, field) end
end

-- entry_set sets the bytes of an entry and its end. Zero bytes remove it.
local function entry_set(id, org, reserved, written, till)
  local _, reserved_before, written_before = entry_of(id)
  local more = reserved + written - reserved_before - written_before
  local none = reserved + written == 0
  if none then
    call('ZREM', ends, id) -- first, because it is allowed when memory is full
    call('HDEL', entries, id)
  end
  sum_add('o ' .. org, more)
  sum_add('all', more)
  sum_add('written', written - written_before)
  if none then return end
  call('HSET', entries, id, org .. ' ' .. int(reserved) .. ' ' .. int(written))
  call('ZADD', ends, int(till), id)
end

-- small_entry returns the entry of an org's small items that end by a time, and when it ends.
local HOUR = 3600000000
local function small_entry(till, org)
  local hour = math.ceil(till / HOUR) * HOUR
  return '@' .. int(hour) .. ' ' .. org, hour
end

-- entries_expire removes expired entries, up to 200 per run. If none is left, the sums restart at
-- zero.
local function entries_expire(now)
  for _, id in ipairs(call('ZRANGEBYSCORE', ends, '-inf', int(now), 'LIMIT', 0, 200)) do
    local org = entry_of(id)
    if org then entry_set(id, org, 0, 0) else call('ZREM', ends, id) end
  end
  if call('EXISTS', ends) == 1 or call('HEXISTS', sums, 'all') == 0 then return end
  call('DEL', entries)
  for _, field in ipairs(call('HKEYS', sums)) do
    if field == 'all' or field == 'written' or string.sub(field, 1, 2) == 'o ' then call('HDEL', sums, field) end
  end
end

-- entries_keep extends the lifetime of the keys to an hour beyond the last entry.
local function entries_keep(now)
  local last = call('ZRANGE', ends, -1, -1, 'WITHSCORES')[2]
  if not last then return end
  local ms = math.floor(math.max(last - now, 0) / 1000) + 3600000
  for _, key in ipairs({ entries, ends, sums }) do
    if call('PTTL', key) - ms < 0 then call('PEXPIRE', key, int(ms)) end
  end
end
