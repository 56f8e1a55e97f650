-- ended: ends of jobs that are to be announced, for one who looks; others see
-- them again when `lease` has passed. Needs time.
-- KEYS 1 ended
-- ARGV 1 now  2 lease us  3 most
-- Reply a line per end: "id state org at_us notice"
local ended = KEYS[1]
local given, lease, most = unpack(ARGV)
local now = now_us(given)
local list = redis.call('ZRANGEBYSCORE', ended, '-inf', int(now), 'LIMIT', 0, most)
for _, member in ipairs(list) do redis.call('ZADD', ended, int(now + tonumber(lease)), member) end
return table.concat(list, '\n')
