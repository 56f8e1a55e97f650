-- present: callers are still waiting for these jobs. Needs time. Never
-- shortens a presence, never brings one back.
-- Full memory must not end a wait, so it begins with a write that is allowed then.
-- KEYS 1 present
-- ARGV 1 now  2 grace us  then job ids
-- Reply one letter per id: 1 renewed, 0 unknown (ended, or given up)
redis.call('ZREM', KEYS[1], '')
local till, out = now_us(ARGV[1]) + tonumber(ARGV[2]), {}
for i = 3, #ARGV do
  local old = redis.call('ZSCORE', KEYS[1], ARGV[i])
  out[#out + 1] = old and '1' or '0'
  if old and tonumber(old) < till then redis.call('ZADD', KEYS[1], int(till), ARGV[i]) end
end
return table.concat(out)
