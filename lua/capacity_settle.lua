-- capacity_settle: what was reserved is written, and no more will follow. Needs time, capacity.
-- KEYS 1 entries  2 ends  3 sums (capacity)
-- ARGV 1 now, then per id: id, bytes that stay (-1 = those written before), us they last,
--      1 = they may be released before
-- An unknown id has already been settled, or has expired.
-- Reply "ok"
local SMALL = 16384
local given = ARGV[1]
call('ZREM', ends, '') -- allowed when memory is full, and so is every write after it
local now = now_us(given)
entries_expire(now)
for i = 2, #ARGV, 4 do
  local id, stay, lasts, removable = unpack(ARGV, i, i + 3)
  local bytes, till = tonumber(stay), now + lasts
  local org, _, written = entry_of(id)
  if bytes < 0 then bytes = written end
  if org and removable == '0' and bytes < SMALL then
    local name, hour = small_entry(till, org)
    local _, _, before = entry_of(name)
    entry_set(id, org, 0, 0)
    if bytes > 0 then entry_set(name, org, 0, before + bytes, hour) end
  elseif org then
    entry_set(id, org, 0, bytes, till)
  end
end
entries_keep(now)
return 'ok'
