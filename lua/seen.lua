-- seen: notes that a process sees the store, and returns since when there was no gap in
-- that: an outage, a jump of Redis's clock, a restart with older data. Library: time.
--
-- KEYS  1 seen (STRING "<since us>,<last us>")
-- ARGV  1 now  2 shortest gap us  3 lifetime of KEYS 1 in ms
-- Reply "<now>,<since>"

local now = now_us(ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3]) -- first write, never refused for memory
local since, last = (redis.call('GET', KEYS[1]) or ''):match('^(%d+),(%d+)$')
if not since or math.abs(now - last) > tonumber(ARGV[2]) then since = int(now) end
redis.call('SET', KEYS[1], since .. ',' .. int(now), 'PX', ARGV[3])
return int(now) .. ',' .. since
