-- present: callers are still waiting for these jobs. Needs time. Never shortens a presence and
-- never restores one. Full memory must not end a wait, so it starts with a write that is allowed
-- then.
-- KEYS 1 present
-- ARGV 1 now  2 grace us  then job ids
-- Reply one letter per id: 1 renewed, 0 unknown (ended, or given up)
local present = KEYS[1]
local given, grace = ARGV[1], ARGV[2]
redis.call('ZREM', present, '')
local till = now_us(given) + tonumber(grace)
local out = {}
for i = 3, #ARGV do
  local id = ARGV[i]
  local old = redis.call('ZSCORE', present, id)
  out[#out + 1] = old and '1' or '0'
  if old and tonumber(old) < till then redis.call('ZADD', present, int(till), id) end
end
return table.concat(out)
