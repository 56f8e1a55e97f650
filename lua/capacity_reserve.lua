-- capacity_reserve: admits the bytes of an id, all or nothing. Needs time, capacity.
-- KEYS 1 entries  2 ends  3 sums (capacity)
-- ARGV 1 now  2 id; empty: the bytes are added to the org's small items of the hour in which they end
--      3 org  4 bytes reserved  5 bytes written now (-1 = those of before)  6 us they last
--      7 maximum bytes of the place (0 = no bound)  8 bytes in it that nothing here counts
--      9 share of an org in what others leave, percent
-- A repetition replaces what the id has; it is never refused if it needs no more than before.
-- Reply "ok" | "full all <free>" | "full org <free>"
local given, id, org, reserved, written, lasts, most, foreign, percent = unpack(ARGV)
reserved, written, most = tonumber(reserved), tonumber(written), tonumber(most)
local now = now_us(given)
entries_expire(now)
local till = now + lasts
local small = id == ''
if small then id, till = small_entry(till, org) end
local _, reserved_before, written_before = entry_of(id)
if small then written = written + written_before end
if written < 0 then written = written_before end
local more = reserved + written - reserved_before - written_before
if more > 0 and most > 0 then
  local sum = call('HMGET', sums, 'all', 'o ' .. org, 'bytes')
  local free = most - foreign - (sum[1] or 0) - (sum[3] or 0)
  local mine = tonumber(sum[2] or 0)
  local share = math.floor((free + mine) * percent / 100) - mine
  if more > free then return 'full all ' .. int(math.max(free, 0)) end
  if more > share then return 'full org ' .. int(math.max(share, 0)) end
end
if more <= 0 then call('ZREM', ends, '') end -- allowed when memory is full, and so is every write after it
entry_set(id, org, reserved, written, math.max(till, tonumber(call('ZSCORE', ends, id) or 0)))
entries_keep(now)
return 'ok'
