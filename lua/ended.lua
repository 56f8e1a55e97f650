-- ended: ends of jobs that are to be announced, for one who looks; others see
-- them again when `lease` has passed. Needs time.
-- KEYS 1 ended
-- ARGV 1 now  2 lease us  3 most
-- Reply a line per end: "id state org at_us notice"
local now = now_us(ARGV[1])
local list = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', int(now), 'LIMIT', 0, ARGV[3])
for _, member in ipairs(list) do redis.call('ZADD', KEYS[1], int(now + tonumber(ARGV[2])), member) end
return table.concat(list, '\n')
