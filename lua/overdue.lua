-- overdue: jobs past their deadline or left by their caller. Needs time.
-- KEYS 1 present  2 due
-- ARGV 1 now  2 most of each
-- Reply words "g<id>" (caller gone) and "e<id>" (expired)
local now, out = int(now_us(ARGV[1])), {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2])) do out[#out + 1] = 'g' .. id end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, ARGV[2])) do out[#out + 1] = 'e' .. id end
return table.concat(out, ' ')
