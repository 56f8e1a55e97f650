-- ended: returns ends of jobs that have to be announced; other readers get them again after
-- `lease`.
-- Needs time.
-- KEYS 1 ended
-- ARGV 1 now  2 lease us  3 maximum number
-- Reply a line per end: "id state org at_us notice"
local ended = KEYS[1]
local given, lease, most = unpack(ARGV)
local now = now_us(given)
local list = redis.call('ZRANGEBYSCORE', ended, '-inf', int(now), 'LIMIT', 0, most)
for _, member in ipairs(list) do redis.call('ZADD', ended, int(now + tonumber(lease)), member) end
return table.concat(list, '\n')
