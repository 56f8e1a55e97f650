-- capacity_release: what ids have is gone from Redis. Needs time, capacity.
-- KEYS 1 entries  2 ends  3 sums
-- ARGV 1 now, then ids
-- Reply "ok"
call('ZREM', ends, '') -- full memory allows this, and then every write after it
entries_expire(now_us(ARGV[1]))
for i = 2, #ARGV do
  local org = entry_of(ARGV[i])
  if org then entry_set(ARGV[i], org, 0, 0) end
end
return 'ok'
