-- key_open: a request arrives with an idempotency key. Needs time. The first request holds the key
-- with a lease; a request that arrives while the key is not held takes over.
-- KEYS 1 record (HASH body, holder, until, job, answer)
-- ARGV 1 now  2 hash of the request  3 id of the holder  4 lease us
-- Reply "new" | "other" (the key was used with a different request) | "held <us>" (the rest of
-- another holder's lease) | "job <id>" (held now) | "answer <id>"
local record = KEYS[1]
local given, body, me, lease = unpack(ARGV)
local now = now_us(given)
local had_body, holder, till, job, answer =
  unpack(redis.call('HMGET', record, 'body', 'holder', 'until', 'job', 'answer'))
local left = tonumber(till or 0) - now
if had_body and had_body ~= body and (job or answer or left > 0) then return 'other' end
if answer then return 'answer ' .. answer end
if left > 0 and holder ~= me then return 'held ' .. int(left) end
redis.call('HSET', record, 'body', body, 'holder', me, 'until', int(now + tonumber(lease)))
if job then return 'job ' .. job end
redis.call('PEXPIRE', record, int(math.ceil(tonumber(lease) / 1000)))
return 'new'
