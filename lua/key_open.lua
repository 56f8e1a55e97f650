-- key_open: a request comes with an idempotency key. Needs time. The first
-- holds the key, and with it a lease; who comes while nobody does takes over.
-- KEYS 1 record (HASH body, holder, until, job, answer)
-- ARGV 1 now  2 hash of the request  3 id of the holder  4 lease us
-- Reply "new" | "other" (it came with another request) | "held <us>" (the rest
-- of somebody's lease) | "job <id>" (held now) | "answer <id>"
local now, me = now_us(ARGV[1]), ARGV[3]
local r = redis.call('HMGET', KEYS[1], 'body', 'holder', 'until', 'job', 'answer')
local left = tonumber(r[3] or 0) - now
local bound = r[4] or r[5]
if r[1] and r[1] ~= ARGV[2] and (bound or left > 0) then return 'other' end
if r[5] then return 'answer ' .. r[5] end
if left > 0 and r[2] ~= me then return 'held ' .. int(left) end
redis.call('HSET', KEYS[1], 'body', ARGV[2], 'holder', me, 'until', int(now + tonumber(ARGV[4])))
if r[4] then return 'job ' .. r[4] end
redis.call('PEXPIRE', KEYS[1], int(math.ceil(tonumber(ARGV[4]) / 1000)))
return 'new'
