-- seen: records that a process reaches the store, and returns since when that was without a gap: an
-- outage, a jump of Redis's clock, a restart with older data. Library: time.
--
-- KEYS  1 seen (STRING "<since us>,<last us>")
-- ARGV  1 now  2 shortest gap us  3 lifetime of KEYS 1 in ms
-- Reply "<now>,<since>"

local seen = KEYS[1]
local given, gap, life = unpack(ARGV)
local now = now_us(given)
redis.call('PEXPIRE', seen, life) -- first write, never refused for lack of memory
local since, last = (redis.call('GET', seen) or ''):match('^(%d+),(%d+)$')
if not since or math.abs(now - last) > tonumber(gap) then since = int(now) end
redis.call('SET', seen, since .. ',' .. int(now), 'PX', life)
return int(now) .. ',' .. since
