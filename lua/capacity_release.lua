-- capacity_release: what ids had written was deleted. Needs time, capacity.
-- KEYS 1 entries  2 ends  3 sums (capacity)
-- ARGV 1 now, then ids
-- Reply "ok"
local given = ARGV[1]
call('ZREM', ends, '') -- allowed when memory is full, and so is every write after it
entries_expire(now_us(given))
for i = 2, #ARGV do
  local id = ARGV[i]
  local org = entry_of(id)
  if org then entry_set(id, org, 0, 0) end
end
return 'ok'
